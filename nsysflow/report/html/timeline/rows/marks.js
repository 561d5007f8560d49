// Which slices stand out? Those whose name a search found, or those of one cause or group.

const SEARCHED = ["operations", "calls", "ranges", "host_stacks", "stack_frames", "profiler"];

/** {tables, slices, count, ns}: `slices` maps a row to the ascending slices of it that match;
 * `matcherOf(report, table)` gives the test of a table's row, or null for none. */
function marksBy(tables, matcherOf) {
  const marks = { tables: new Set(tables), slices: new Map(), count: 0, ns: 0 };
  for (const lane of lanes) {
    if (!lane.rows || !marks.tables.has(lane.table.key)) continue;
    const matches = matcherOf(lane.report, lane.table);
    if (!matches) continue;
    for (const row of lane.rows) markRow(marks, row, matches);
  }
  return marks;
}

function markRow(marks, row, matches) {
  const found = [];
  for (let slice = 0; slice < row.n; slice++) {
    if (!matches(tableRow(row, slice))) continue;
    found.push(slice);
    marks.ns += row.end[slice] - row.start[slice];
  }
  marks.count += found.length;
  if (found.length) marks.slices.set(row, Uint32Array.from(found));
}

/** The slices with a part of the name, in capitals or not. */
function marksOfSearch(query) {
  const wanted = query.toLowerCase();
  const hits = new Map(); // per report: 1 for each text that matches
  return marksBy(SEARCHED, (report, table) => {
    if (!report.texts || !table.name) return null;
    if (!hits.has(report)) {
      const found = report.texts.map((text) => (text.toLowerCase().includes(wanted) ? 1 : 0));
      hits.set(report, Uint8Array.from(found));
    }
    const found = hits.get(report);
    return (row) => found[table.name[row]] === 1;
  });
}

/** The operations of a group; the frames of the program itself. */
function marksOfKind(key, kind) {
  return marksBy([key], (report, table) => (row) => table.kinds[row] === kind);
}

/** The gaps that a cause has a part of; their `ns` is that of these parts. */
function marksOfCause(cause) {
  const marks = marksBy(["gaps"], (report, table) => (row) => hasCause(table, row, cause));
  const idle = lanes.filter(({ kind, rows }) => kind === "gaps" && rows);
  marks.ns = idle.reduce((sum, lane) => sum + idleBefore(lane, lane.count)[cause], 0);
  return marks;
}

/** The next marked slice after (or before) a place, by start, then from the top down; at the end it
 * begins again. Null where none is marked. */
function nextMarked(marks, from, backwards) {
  const order = new Map(shownOrder().map((row, rank) => [row, rank]));
  const keyOf = ({ row, slice }) => [row.start[slice], order.get(row) ?? order.size];
  const later = (a, b) => a[0] - b[0] || a[1] - b[1];
  const sign = backwards ? -1 : 1;
  let [next, first] = [null, null];
  for (const [row, slices] of marks.slices) {
    for (const slice of nearMarked(row, slices, from ? from.row.start[from.slice] : -Infinity)) {
      const place = { row, slice };
      const rank = (a, b) => sign * later(keyOf(a), keyOf(b));
      if (!first || rank(place, first) < 0) first = place;
      if (from && rank(place, from) <= 0) continue;
      if (!next || rank(place, next) < 0) next = place;
    }
  }
  return next ?? first;
}

/** Of a row's marked slices those around a time, and both ends: enough to find the next one. */
function nearMarked(row, slices, time) {
  let low = 0;
  let high = slices.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (row.start[slices[middle]] >= time) high = middle;
    else low = middle + 1;
  }
  const ranks = [0, low - 1, low, low + 1, slices.length - 1];
  return ranks.filter((rank) => rank >= 0 && rank < slices.length).map((rank) => slices[rank]);
}

/** All rows, from the top down. */
function shownOrder() {
  return orderedGroups().flatMap((group) => inOrder(group.lanes).flatMap(({ rows }) => rows ?? []));
}
