// When was each GPU idle, and why? The times and causes of the gaps, and their sums over any window.

const BLOCK = 256; // gaps between two stored sums: a window adds up at most two blocks

/** Add `start`, `end`, `duration` and `firstPart` to a report's gaps: a gap lasts from the end of an
 * operation to the start of the next one. */
function setGapTimes(gaps, operations) {
  const { n, prev_op: before, next_op: after, parts } = gaps;
  gaps.start = new Float64Array(n);
  gaps.end = new Float64Array(n);
  gaps.duration = new Float64Array(n);
  gaps.firstPart = new Uint32Array(n + 1);
  for (let row = 0; row < n; row++) {
    gaps.start[row] = operations.end[before[row]];
    gaps.end[row] = operations.start[after[row]];
    gaps.duration[row] = gaps.end[row] - gaps.start[row];
    gaps.firstPart[row + 1] = gaps.firstPart[row] + parts[row];
  }
}

/** Call `add(cause, ns)` for each cause of a gap; the main cause comes last, with the rest. */
function eachCause(gaps, row, add) {
  let rest = gaps.duration[row];
  for (let part = gaps.firstPart[row]; part < gaps.firstPart[row + 1]; part++) {
    rest -= gaps.part_ns[part];
    add(gaps.part_cause[part], gaps.part_ns[part]);
  }
  add(gaps.cause[row], rest);
}

/** Whether a cause has a part of a gap. */
function hasCause(gaps, row, cause) {
  if (gaps.cause[row] === cause) return true;
  for (let part = gaps.firstPart[row]; part < gaps.firstPart[row + 1]; part++) {
    if (gaps.part_cause[part] === cause) return true;
  }
  return false;
}

/** ns by cause of the gaps before each block of a lane, a block after the other. */
function blockSums(lane) {
  const causes = about.timeline.causes.length;
  const blocks = Math.ceil(lane.count / BLOCK);
  const sums = new Float64Array((blocks + 1) * causes);
  const running = new Float64Array(causes);
  const add = (cause, ns) => (running[cause] += ns);
  for (let i = 0; i < lane.count; i++) {
    if (i % BLOCK === 0) sums.set(running, (i / BLOCK) * causes);
    eachCause(lane.table, lane.first + i, add);
  }
  sums.set(running, blocks * causes);
  return sums;
}

/** ns by cause of the whole gaps of a lane before its `count`-th. */
function idleBefore(lane, count) {
  lane.sums ??= blockSums(lane);
  const causes = about.timeline.causes.length;
  const block = Math.floor(count / BLOCK);
  const sums = lane.sums.slice(block * causes, (block + 1) * causes);
  const add = (cause, ns) => (sums[cause] += ns);
  for (let i = block * BLOCK; i < count; i++) eachCause(lane.table, lane.first + i, add);
  return sums;
}

/** ns by cause that a GPU idles in [start, end), whole numbers. A gap that an edge cuts keeps its causes
 * in proportion. */
function idleWithin(lane, start, end) {
  const [row] = lane.rows;
  const from = firstAbove(row.end, start);
  const to = firstFrom(row.start, end);
  if (from >= to) return new Float64Array(about.timeline.causes.length);
  const before = idleBefore(lane, from);
  const idle = idleBefore(lane, to).map((ns, cause) => ns - before[cause]);
  for (const slice of new Set([from, to - 1])) {
    const inside = Math.min(row.end[slice], end) - Math.max(row.start[slice], start);
    if (inside === row.end[slice] - row.start[slice]) continue;
    eachCause(lane.table, lane.first + slice, (cause, ns) => (idle[cause] -= ns));
    for (const [cause, ns] of apportioned(lane.table, lane.first + slice, inside)) idle[cause] += ns;
  }
  return idle;
}

/** [[cause, ns]...] of `total` ns of a gap, by the largest remainder, of equal ones the first cause: as
 * nsysflow/analysis/selection/windows.py. In whole numbers of any size: ns times ns passes 2 ** 53. */
function apportioned(gaps, row, total) {
  const whole = BigInt(gaps.duration[row]);
  const parts = [];
  eachCause(gaps, row, (cause, ns) => {
    const share = BigInt(ns) * BigInt(total);
    parts.push({ cause, ns: Number(share / whole), rest: share % whole });
  });
  const left = total - parts.reduce((sum, { ns }) => sum + ns, 0);
  parts.sort((a, b) => (a.rest === b.rest ? a.cause - b.cause : a.rest < b.rest ? 1 : -1));
  return parts.map(({ cause, ns }, rank) => [cause, ns + (rank < left ? 1 : 0)]);
}

/** The longest judged gap of all GPUs that is shorter than a given one; or, backwards, the shortest
 * that is longer. Of equal ones the first counts. Null without any. */
function nextLongest(from, backwards) {
  let best = null;
  const sign = backwards ? -1 : 1;
  const rank = (a, b) => sign * (b.ns - a.ns) || sign * (a.report - b.report || a.row - b.row);
  for (const report of reports) {
    const { number, tables: { gaps } } = report;
    if (!gaps?.duration) continue;
    for (let row = 0; row < gaps.n; row++) {
      if (!isJudged(report, (gaps.start[row] + gaps.end[row]) / 2)) continue;
      const gap = { ns: gaps.duration[row], report: number, row };
      if (from && rank(gap, from) <= 0) continue;
      if (!best || rank(gap, best) < 0) best = gap;
    }
  }
  return best;
}
