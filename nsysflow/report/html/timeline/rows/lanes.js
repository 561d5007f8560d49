// Which lanes are there, and which rows of them are drawn? A lane is one line of the picture; it has
// a row per depth, so that slices of a row never overlap and are sorted by start and by end.

const TABLE_OF = {
  steps: "steps",
  phases: "ranges",
  calls: "calls",
  host_stack: "host_stacks",
  profiler: "profiler",
  stream: "operations",
  gaps: "gaps",
  counter: "counters",
};
const GROUPS = ["compute", "communication", "copy", "memset", "other"];
const SHADES = 6; // colours of what has a name and no class: phases, steps, host stacks

/** What decides the colour of a slice, and the CSS variables of these colours, table by table. */
const COLOURS = {
  operations: GROUPS.map((group) => `--class-${group}`),
  calls: about.timeline.call_classes.map(({ name }) => `--call-${name}`),
  gaps: about.timeline.causes.map(({ name }) => `--cause-${name}`),
};
const SHADE_COLOURS = Array.from({ length: SHADES }, (_, shade) => `--range-${shade}`);

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
  if (table.key === "operations") return table.class.map((number) => GROUP_OF_CLASS[number]);
  if (table.key === "calls") return table.class;
  if (table.key === "gaps") return table.cause;
  const shade = (text) => hashOf(text.replace(/\d+/g, "")) % SHADES;
  const shades = table.key === "steps" ? null : Uint8Array.from(report.texts, shade);
  return Uint8Array.from({ length: table.n }, (_, row) => (shades ? shades[table.name[row]] : row % 2));
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
    this.table.kinds ??= kindsOf(this.report, this.table);
    this.rows = rowsByDepth(this);
  }
}

/** The slices of one depth of a lane. `at` has their rows in the table, null where they follow each
 * other from `lane.first` on. */
function rowOfDepth(lane, depth, at) {
  const { table, first, count } = lane;
  const pick = (values) =>
    at ? Float64Array.from(at, (row) => values[row]) : values.subarray(first, first + count);
  return {
    lane,
    depth,
    at,
    n: at ? at.length : count,
    start: pick(table.start),
    end: pick(table.end),
    kind: at
      ? Uint8Array.from(at, (row) => table.kinds[row])
      : table.kinds.subarray(first, first + count),
    kinds: coloursOf(table.key).length,
  };
}

function rowsByDepth(lane) {
  const { depths, first, count, table } = lane;
  if (depths === 1) return [rowOfDepth(lane, 0, null)];
  const sizes = new Uint32Array(depths);
  for (let row = first; row < first + count; row++) sizes[table.depth[row]]++;
  const at = Array.from(sizes, (size) => new Uint32Array(size));
  const filled = new Uint32Array(depths);
  for (let row = first; row < first + count; row++) {
    const depth = table.depth[row];
    at[depth][filled[depth]++] = row;
  }
  return at.map((rows, depth) => rowOfDepth(lane, depth, rows));
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
