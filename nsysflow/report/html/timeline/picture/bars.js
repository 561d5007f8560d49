// How is a row of slices drawn? Slices of a pixel or more as bars; shorter ones as columns, as high as
// their share of the pixel's time; more of them than pixels from the pyramid.

const DENSE = 8; // slices a pixel above which the pyramid is read instead
const SEPARATED = 5; // px from which a bar leaves one px to the next

/** Draw a row between `top` and `bottom`. `scale` is {start, nsPerPixel, left, width} in device
 * pixels; `faded` says that something else is to stand out; bars with room for one go to `labels`. */
function drawRow(raster, scale, row, top, bottom, tones, faded, labels) {
  const from = firstAbove(row.end, scale.start);
  const to = firstFrom(row.start, scale.start + scale.width * scale.nsPerPixel);
  const level = to - from > DENSE * scale.width ? levelFor(row, scale.nsPerPixel) : null;
  const colours = tones.map((tone) => (faded ? tone.faded : tone.full));
  if (level) drawLevel(raster, scale, row, level, top, bottom, colours);
  else drawSlices(raster, scale, row, [from, to], [top, bottom], { tones, colours, faded, labels });
}

function drawLevel(raster, { start, nsPerPixel, left, width }, row, level, top, bottom, colours) {
  const { binNs, bins, sums } = level;
  const { kinds } = row;
  const amounts = new Float64Array(kinds);
  const offset = start - about.timeline.start_ns;
  let bin = Math.max(0, Math.round(offset / binNs));
  for (let x = 0; x < width && bin < bins; x++) {
    const next = Math.min(Math.round((offset + (x + 1) * nsPerPixel) / binNs), bins);
    if (next <= bin) continue;
    amounts.fill(0);
    for (let at = bin * kinds; at < next * kinds; at++) amounts[at % kinds] += sums[at];
    raster.stack(left + x, top, bottom, amounts, (next - bin) * binNs, colours);
    bin = next;
  }
}

function drawSlices(raster, scale, row, [from, to], [top, bottom], look) {
  const { tones, colours, faded, labels } = look;
  const { start: origin, nsPerPixel, left, width } = scale;
  const { start, end, kind } = row;
  const amounts = new Float64Array(row.kinds);
  let column = -1;
  const flush = () => {
    if (column >= 0) raster.stack(left + column, top, bottom, amounts, nsPerPixel, colours);
    column = -1;
  };
  for (let i = from; i < to; i++) {
    const x0 = (start[i] - origin) / nsPerPixel;
    const x1 = (end[i] - origin) / nsPerPixel;
    if (x1 - x0 < 1) {
      const x = Math.max(0, Math.floor(x0));
      if (x !== column) {
        flush();
        column = x;
        amounts.fill(0);
      }
      amounts[kind[i]] += Math.max(end[i] - start[i], 1e-9); // an instant is seen, too
      continue;
    }
    flush();
    const l = left + Math.max(0, Math.round(x0));
    const r = left + Math.min(width, Math.max(Math.round(x1), Math.round(x0) + 1));
    const shade = faded ? colours[kind[i]] : tones[kind[i]].shades[shadeOf(row, i)];
    raster.bar(l, top, r - l >= SEPARATED ? r - 1 : r, bottom, shade);
    if (row.lane.kind === "gaps") drawParts(raster, row, i, l, r, top, bottom, colours);
    if (labels && r - l >= scale.labelPx) {
      labels.push({ row, slice: i, left: l, right: r, top, bottom, faded });
    }
  }
  flush();
}

/** Slices of one name have one shade. */
function shadeOf(row, slice) {
  const { table } = row.lane;
  return table.key === "operations" && table.name ? table.name[tableRow(row, slice)] & 3 : 0;
}

/** The smaller causes of a gap, from the top down, as high as their share. */
function drawParts(raster, row, slice, left, right, top, bottom, colours) {
  const { table } = row.lane;
  const gap = tableRow(row, slice);
  const gapNs = table.duration[gap];
  let y = top;
  for (let part = table.firstPart[gap]; part < table.firstPart[gap + 1]; part++) {
    const height = Math.round(((bottom - top) * table.part_ns[part]) / gapNs);
    const to = right - left >= SEPARATED ? right - 1 : right;
    raster.bar(left, y, to, y + height, colours[table.part_cause[part]]);
    y += height;
  }
}

/** Draw only some slices of a row, each at least a pixel wide, e.g. what a search found. */
function drawMarked(raster, scale, row, marked, top, bottom, tones) {
  const { start: origin, nsPerPixel, left, width } = scale;
  let i = firstMarkedAfter(row, marked, origin);
  for (; i < marked.length && row.start[marked[i]] < origin + width * nsPerPixel; i++) {
    const slice = marked[i];
    const x0 = Math.max(0, Math.floor((row.start[slice] - origin) / nsPerPixel));
    const x1 = Math.min(width, Math.max(Math.round((row.end[slice] - origin) / nsPerPixel), x0 + 1));
    const apart = x1 - x0 >= SEPARATED ? 1 : 0;
    raster.bar(left + x0, top, left + x1 - apart, bottom, tones[row.kind[slice]].full);
  }
}

/** The first index in `marked`, slices of a row, of one that ends after a time. */
function firstMarkedAfter(row, marked, time) {
  let low = 0;
  let high = marked.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (row.end[marked[middle]] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** A sampled counter as an area, 0 to 100 %: the highest value of each pixel light, the mean full. */
function drawCounter(raster, scale, lane, top, bottom, { full, faded }) {
  const { table, first, count } = lane;
  const { start, nsPerPixel, left, width } = scale;
  const times = (lane.times ??= table.start.subarray(first, first + count));
  const y = (pct) => bottom - Math.round(((bottom - top) * Math.min(Math.max(pct, 0), 100)) / 100);
  let i = firstAbove(times, start);
  let held = i > 0 ? table.value[first + i - 1] : NaN;
  for (let x = 0; x < width; x++) {
    const until = start + (x + 1) * nsPerPixel;
    let [sum, seen, highest] = [0, 0, held];
    for (; i < count && times[i] < until; i++) {
      held = table.value[first + i];
      sum += held;
      seen += 1;
      highest = seen === 1 ? held : Math.max(highest, held);
    }
    if (i === count && seen === 0) break; // nothing is known after the last sample
    if (Number.isNaN(held)) continue;
    const mean = y(seen ? sum / seen : held);
    raster.column(left + x, y(highest), mean, faded);
    raster.column(left + x, Math.min(mean, bottom - 1), bottom, full);
  }
}
