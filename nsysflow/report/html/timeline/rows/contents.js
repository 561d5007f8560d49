// What is in an area of the timeline? GPU work, idle time and Python lines, to the ns.

/** The lanes of an area: those it names, else all that are not hidden. */
function lanesOfArea({ lanes: ids }) {
  return ids ? ids.map((id) => lanes[id]) : lanes.filter((lane) => !isHidden(lane));
}

/** {gpuNs, work, idle, stacks} of an area: `gpuNs` is its length on each of its GPUs; the others map a
 * name, or the number of a cause, to {count, ns}. What the area's edges cut counts with its part inside. */
function contentsOf(area) {
  const mine = lanesOfArea(area).filter(({ rows }) => rows);
  const idle = mine.filter(({ kind }) => kind === "gaps");
  return {
    gpuNs: idle.length * (area.end - area.start),
    work: summedByName(mine.filter(({ kind }) => kind === "stream"), area),
    idle: summedByCause(idle, area),
    stacks: summedByName(mine.filter(({ kind }) => kind === "host_stack"), area),
  };
}

function summedByName(some, area) {
  const sums = new Map();
  for (const report of reports) {
    const counts = new Float64Array(report.texts.length);
    const times = new Float64Array(report.texts.length);
    for (const lane of some) if (lane.report === report) addNames(lane, area, counts, times);
    counts.forEach((count, name) => count && addTo(sums, report.texts[name], count, times[name]));
  }
  return sums;
}

function addNames({ rows, table }, { start, end }, counts, times) {
  if (!table.name) return;
  for (const row of rows) {
    const to = firstFrom(row.start, end);
    for (let slice = firstAbove(row.end, start); slice < to; slice++) {
      const name = table.name[tableRow(row, slice)];
      counts[name] += 1;
      times[name] += Math.min(row.end[slice], end) - Math.max(row.start[slice], start);
    }
  }
}

function summedByCause(some, { start, end }) {
  const sums = new Map();
  for (const lane of some) {
    idleWithin(lane, start, end).forEach((ns, cause) => ns && addTo(sums, cause, 1, ns));
  }
  return sums;
}

function addTo(sums, key, count, ns) {
  const sum = sums.get(key) ?? { count: 0, ns: 0 };
  sums.set(key, { count: sum.count + count, ns: sum.ns + ns });
}
