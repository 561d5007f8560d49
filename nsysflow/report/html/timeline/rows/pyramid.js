// How busy is a row in each stretch of 1, 2, 4, 8... ns? Sums by colour, so that any zoom reads as
// many numbers as it has pixels.

const SLICES_PER_BIN = 4;
const FEWEST_BINS = 64;

/** Levels of a row, the finest first: {binNs, bins, kinds, sums}; `sums[bin * kinds + kind]` is in ns. */
function pyramidOf(row) {
  const { start_ns: origin, end_ns: end } = about.timeline;
  const span = Math.max(end - origin, 1);
  const wanted = Math.max(row.n / SLICES_PER_BIN, FEWEST_BINS);
  let level = finestLevel(row, origin, span, 2 ** Math.max(0, Math.ceil(Math.log2(span / wanted))));
  const levels = [level];
  while (level.bins > FEWEST_BINS) levels.push((level = coarser(level)));
  return levels;
}

function finestLevel(row, origin, span, binNs) {
  const { kinds, n, start, end, kind } = row;
  const bins = Math.ceil(span / binNs);
  const level = { binNs, bins, kinds, sums: new Float64Array(bins * kinds) };
  const { table, first } = row.lane;
  let [from, to] = [0, 0];
  const add = (cause, ns) => spread(level, from, to, ns, cause);
  for (let i = 0; i < n; i++) {
    from = start[i] - origin;
    to = end[i] - origin;
    if (table.firstPart) eachCause(table, first + i, add);
    else spread(level, from, to, to - from, kind[i]);
  }
  return level;
}

/** Add `ns` of a kind evenly to the bins between two times. */
function spread({ binNs, bins, kinds, sums }, from, to, ns, kind) {
  const first = Math.min(Math.floor(from / binNs), bins - 1);
  const last = Math.min(Math.floor(to / binNs), bins - 1);
  if (first === last) {
    sums[first * kinds + kind] += ns;
    return;
  }
  const perNs = ns / (to - from);
  sums[first * kinds + kind] += ((first + 1) * binNs - from) * perNs;
  for (let bin = first + 1; bin < last; bin++) sums[bin * kinds + kind] += binNs * perNs;
  sums[last * kinds + kind] += (to - last * binNs) * perNs;
}

function coarser({ binNs, bins, kinds, sums }) {
  const half = Math.ceil(bins / 2);
  const pairs = new Float64Array(half * kinds);
  for (let bin = 0; bin < bins; bin++) {
    const to = (bin >> 1) * kinds;
    for (let kind = 0; kind < kinds; kind++) pairs[to + kind] += sums[bin * kinds + kind];
  }
  return { binNs: 2 * binNs, bins: half, kinds, sums: pairs };
}

/** The coarsest level with at least one bin a pixel; null where even the finest has fewer. */
function levelFor(row, nsPerPixel) {
  row.pyramid ??= pyramidOf(row);
  let best = null;
  for (const level of row.pyramid) if (level.binNs <= nsPerPixel) best = level;
  return best;
}
