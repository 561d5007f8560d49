// Which lanes are there, and which rows of them are drawn? A lane is one line of the picture; it has
// a row per depth, so that slices of a row never overlap and are sorted by start and by end.

const TABLE_OF = {
  steps: "steps",
  phases: "ranges",
  calls: "calls",
  host_stack: "host_stacks",
  stack: "stack_frames",
  profiler: "profiler",
  worker: "batches",
  stream: "operations",
  gaps: "gaps",
  counter: "counters",
};
const GROUPS = ["compute", "communication", "copy", "memset", "other"];
const SHADES = 6; // colours of what has a name and no class: phases, steps, host stacks
const SHADE_COLOURS = Array.from({ length: SHADES }, (_, shade) => `--range-${shade}`);

/** What decides the colour of a slice, and the CSS variables of these colours, table by table. */
const COLOURS = {
  stack_frames: [...SHADE_COLOURS, "--own"],
  operations: GROUPS.map((group) => `--class-${group}`),
  calls: about.timeline.call_classes.map(({ name }) => `--call-${name}`),
  gaps: about.timeline.causes.map(({ name }) => `--cause-${name}`),
};

function coloursOf(table) {
  return COLOURS[table] ?? SHADE_COLOURS;
}

const GROUP_OF_CLASS = Uint8Array.from(about.timeline.classes, ({ name, group }) =>
  GROUPS.indexOf(name === "memset" ? name : group)
);

/** A number for a text that is the same on every rank. */
function hashOf(text) {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
  return hash >>> 0;
}

/** The colour's number of each row of a table. */
function kindsOf(report, table) {
  if (table.key === "operations") return lookedUp(GROUP_OF_CLASS, table.class);
  if (table.key === "calls") return table.class;
  if (table.key === "gaps") return table.cause;
  if (table.key === "steps") return Uint8Array.from({ length: table.n }, (_, row) => row % 2);
  const shade = (text) => hashOf(text.replace(/\d+/g, "")) % SHADES;
  const shades = lookedUp(Uint8Array.from(report.texts, shade), table.name);
  return table.own ? shades.map((each, row) => (table.own[row] ? SHADES : each)) : shades;
}

function lookedUp(values, places) {
  const found = new Uint8Array(places.length);
  for (let i = 0; i < places.length; i++) found[i] = values[places[i]];
  return found;
}

class Lane {
  constructor(report, described) {
    Object.assign(this, described); // kind, title, process, thread, device, stream, first, count
    this.report = report;
    this.table = report.tables[TABLE_OF[described.kind]];
    this.depths = described.rows;
    this.rows = null; // until its table is decoded
    this.top = 0;
    this.height = 0;
  }

  setRows() {
    if (this.rows || this.kind === "counter") return;
    const { table } = this;
    table.kinds ??= kindsOf(this.report, table);
    this.rows = this.depths === 1 ? [wholeRow(this)] : rowsByDepth(this);
  }
}

/** All slices of a lane that needs one row. */
function wholeRow(lane) {
  const { table, first, count } = lane;
  const part = (values) => values.subarray(first, first + count);
  const { length: kinds } = coloursOf(table.key);
  return {
    lane, depth: 0, at: null, n: count, kinds,
    start: part(table.start), end: part(table.end), kind: part(table.kinds),
  };
}

/** A row per depth. `at` has the rows of its slices in the table. */
function rowsByDepth(lane) {
  const { depths, first, count, table } = lane;
  const { length: kinds } = coloursOf(table.key);
  const sizes = new Uint32Array(depths);
  for (let row = first; row < first + count; row++) sizes[table.depth[row]]++;
  const rows = Array.from(sizes, (n, depth) => ({
    lane, depth, at: new Uint32Array(n), n, kinds,
    start: new Float64Array(n), end: new Float64Array(n), kind: new Uint8Array(n),
  }));
  const filled = new Uint32Array(depths);
  for (let row = first; row < first + count; row++) {
    const { at, start, end, kind } = rows[table.depth[row]];
    const slice = filled[table.depth[row]]++;
    at[slice] = row;
    start[slice] = table.start[row];
    end[slice] = table.end[row];
    kind[slice] = table.kinds[row];
  }
  return rows;
}

/** The row in its table of a slice of a row of the picture. */
function tableRow(row, slice) {
  return row.at ? row.at[slice] : row.lane.first + slice;
}

/** The first index from which `values`, which ascend, are above `limit`. */
function firstAbove(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The first index from which `values`, which ascend, are `limit` or above. */
function firstFrom(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] >= limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

const lanes = reports.flatMap((report) =>
  report.described.lanes.map((described) => new Lane(report, described))
);

/** Where a row of a table is drawn: {row, slice}; null where its lane has no rows yet. */
function placeOf({ report, table, row: wanted }) {
  const lane = lanes.find(
    ({ report: of, table: { key }, first, count }) =>
      of.number === report && key === table && wanted >= first && wanted < first + count
  );
  if (!lane?.rows) return null;
  if (lane.depths === 1) return { row: lane.rows[0], slice: wanted - lane.first };
  const row = lane.rows[lane.table.depth[wanted]];
  return { row, slice: firstFrom(row.at, wanted) };
}
