// How busy is a row in each stretch of 1, 2, 4, 8... ns? Sums by colour, so that any zoom reads as
// many numbers as it has pixels.

const SLICES_PER_BIN = 4;
const FEWEST_BINS = 64;

/** Levels of a row, the finest first: {binNs, bins, sums}; `sums[bin * kinds + kind]` is in ns. */
function pyramidOf(row) {
  const { start_ns: origin, end_ns: end } = about.timeline;
  const span = Math.max(end - origin, 1);
  const wanted = Math.max(row.n / SLICES_PER_BIN, FEWEST_BINS);
  let level = finestLevel(row, origin, span, 2 ** Math.max(0, Math.ceil(Math.log2(span / wanted))));
  const levels = [level];
  while (level.bins > FEWEST_BINS) levels.push((level = coarser(level, row.kinds)));
  return levels;
}

function finestLevel(row, origin, span, binNs) {
  const { kinds } = row;
  const bins = Math.ceil(span / binNs);
  const sums = new Float64Array(bins * kinds);
  const spread = (from, to, ns, kind) => {
    const first = Math.floor(from / binNs);
    const last = Math.min(Math.floor(to / binNs), bins - 1);
    if (first >= last) {
      sums[Math.min(first, bins - 1) * kinds + kind] += ns;
      return;
    }
    const perNs = ns / (to - from);
    sums[first * kinds + kind] += ((first + 1) * binNs - from) * perNs;
    for (let bin = first + 1; bin < last; bin++) sums[bin * kinds + kind] += binNs * perNs;
    sums[last * kinds + kind] += (to - last * binNs) * perNs;
  };
  const { table, first } = row.lane;
  for (let i = 0; i < row.n; i++) {
    const from = row.start[i] - origin;
    const to = row.end[i] - origin;
    if (table.firstPart) eachCause(table, first + i, (cause, ns) => spread(from, to, ns, cause));
    else spread(from, to, to - from, row.kind[i]);
  }
  return { binNs, bins, sums };
}

function coarser({ binNs, bins, sums }, kinds) {
  const half = Math.ceil(bins / 2);
  const pairs = new Float64Array(half * kinds);
  for (let bin = 0; bin < bins; bin++) {
    const to = (bin >> 1) * kinds;
    for (let kind = 0; kind < kinds; kind++) pairs[to + kind] += sums[bin * kinds + kind];
  }
  return { binNs: 2 * binNs, bins: half, sums: pairs };
}

/** The coarsest level with at least one bin a pixel; null where even the finest has fewer. */
function levelFor(row, nsPerPixel) {
  row.pyramid ??= pyramidOf(row);
  let best = null;
  for (const level of row.pyramid) if (level.binNs <= nsPerPixel) best = level;
  return best;
}
