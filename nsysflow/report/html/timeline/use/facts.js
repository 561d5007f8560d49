// What is known of one slice? A list of facts in plain words, for the panel and for the tooltip.

/** The name with all its template arguments, where it differs from the short one. */
function fullNameOf({ report, table, row }) {
  const { fullNames, tables } = reports[report];
  return (fullNames && tables[table].name && fullNames[tables[table].name[row]]) || null;
}

/** The step around a time, and its kind; empty outside of steps. */
function stepAt(report, time) {
  const lane = lanes.find(({ kind, rows, report: of }) => kind === "steps" && rows && of === report);
  if (!lane) return "";
  const [row] = lane.rows;
  const slice = firstAbove(row.end, time);
  if (slice >= row.n || row.start[slice] > time) return "";
  return `${stepName(lane.table, lane.first + slice)}${stepKind(lane.table, lane.first + slice)}`;
}

function stepKind(steps, row) {
  const kind = about.timeline.step_kinds?.[steps.kind?.[row]];
  return kind ? ` (${kind.replaceAll("_", " ")})` : "";
}

const SORTS = {
  ranges: "phase",
  steps: "step",
  host_stacks: "host stack",
  stack_frames: "function on the stack",
  profiler: "profiler's own work",
  batches: "batch of a loader's worker",
};

/** What a slice is, in two or three words. */
function sortOf({ report, table, row }) {
  const of = reports[report].tables[table];
  if (table === "operations") {
    const { label, group } = about.timeline.classes[of.class[row]];
    return group === "copy" ? "copy" : label === group ? group : `${label} kernel`;
  }
  if (table === "calls") return "CUDA call";
  if (table === "gaps") return "the GPU idles";
  return SORTS[table];
}

/** [[term, text]...] of a slice; what is not known is not there. */
function factsOf(at) {
  const report = reports[at.report];
  const table = report.tables[at.table];
  const start = table.start[at.row];
  const facts = [
    ["starts at", exactTime(start - about.timeline.start_ns)],
    ["lasts", durationOf(table.duration[at.row])],
    ["step", at.table === "steps" ? "" : stepAt(report, start)],
    ["kind", at.table === "steps" ? stepKind(table, at.row).trim() : ""],
    ["phase", phaseOf(report, table, at.row)],
    ["bytes", table.bytes?.[at.row] ? shownAs("size", table.bytes[at.row]) : ""],
    ["bandwidth", bandwidthOf(table, at.row)],
    ["class", at.table === "calls" ? about.timeline.call_classes[table.class[at.row]].label : ""],
    ["source line", sourceOf(at)],
    ["report", reports.length > 1 ? report.name : ""],
  ];
  return facts.filter(([, text]) => text);
}

/** `12.3 us (12,345 ns)`. */
function durationOf(ns) {
  const short = shownAs("duration", ns);
  return ns >= 1000 ? `${short} (${shownAs("count", ns)} ns)` : short;
}

function phaseOf(report, table, row) {
  const number = table.phase?.[row];
  return number ? report.described.paths[number - 1] : "";
}

function bandwidthOf({ bytes, duration }, row) {
  if (!bytes?.[row] || !duration[row]) return "";
  return `${shownAs("size", Math.round((bytes[row] / duration[row]) * 1e9))}/s`;
}

/** The line of the program: of a call its own, else that of the call to which the slice leads. */
function sourceOf(at) {
  const { texts, tables } = reports[at.report];
  const { source } = tables.calls;
  if (!source) return "";
  if (at.table === "calls") return source[at.row] ? texts[source[at.row] - 1] : "";
  const call = linksOf(at).find(({ role, table }) => role !== "work" && table === "calls");
  return call && source[call.row] ? texts[source[call.row] - 1] : "";
}

/** [[cause, ns]...] of a gap, the largest first. */
function causesOf({ report, row }) {
  const found = [];
  eachCause(reports[report].tables.gaps, row, (cause, ns) => found.push([cause, ns]));
  return found.filter(([, ns]) => ns > 0).sort(([, one], [, other]) => other - one);
}
