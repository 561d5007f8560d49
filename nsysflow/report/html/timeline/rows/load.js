// In which order are columns decoded? First what the opening view and the overview show, then the
// rest, with a pause for the reader's own clicks after each column.

const FIRST = [
  ["steps", "steps", ["start", "duration", "step", "kind", "device"]],
  ["kernels", "operations", ["start", "duration", "class", "depth"]],
];
const THEN = [
  ["gaps", "gaps", ["prev_op", "next_op", "cause", "parts", "part_cause", "part_ns"]],
  ["phases", "ranges", ["start", "duration", "depth", "name"]],
  ["API calls", "calls", ["start", "duration", "class", "depth"]],
  ["kernel names", "operations", ["name"]],
  ["counters", "counters", ["start", "value"]],
  ["host stacks", "host_stacks", ["start", "duration", "name"]],
  ["Python stacks", "stack_frames", ["first", "stretches", "depth", "name", "own"]],
  ["profiler", "profiler", ["start", "duration", "depth", "name"]],
  ["loader workers", "batches", ["start", "duration", "depth", "name"]],
  ["call names", "calls", ["name"]],
  ["causes", "gaps", ["culprit_call", "culprit_op", "phase"]],
  ["launches", "operations", ["call", "phase", "bytes"]],
  ["source lines", "calls", ["source"]],
];

const LONG_ROW = 5000; // slices that are drawn quickly one by one

/** `done` counts what is decoded; `text` says what comes next, empty at the end. */
const loading = { done: 0, text: "starting" };

function letOthersRun() {
  return window.scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));
}

/** Decode these tables of all reports; calls `progressed()` after each. */
async function loadTables(wanted, progressed) {
  for (const [what, key, columns] of wanted) {
    for (const report of reports) {
      const table = report.tables[key];
      if (!table) continue;
      loading.text = `Reading ${what} of ${report.name} …`;
      for (const name of columns) {
        await table.decode(name);
        await letOthersRun();
      }
      setTimes(report, table);
    }
    for (const lane of lanes) if (lane.table.key === key && lane.table.end) lane.setRows();
    await letOthersRun();
    loading.done += 1;
    progressed();
  }
}

/** The ends of slices, as soon as what they are made of is decoded. */
function setTimes(report, table) {
  if (table.end || table.key === "counters") return;
  if (table.key === "gaps") setGapTimes(table, report.tables.operations);
  else if (table.key === "stack_frames") setFrameTimes(table, report.tables.host_stacks);
  else if (table.has("start", "duration")) table.setEnds();
}

/** Decode everything. Resolves when the last column is there. */
async function loadAll(opened, progressed) {
  for (const report of reports) report.texts = await textsOf(report.described.strings);
  await loadTables(FIRST, progressed);
  opened();
  await letOthersRun();
  await loadTables(THEN, progressed);
  for (const report of reports) {
    if (report.described.full_names) report.fullNames = await textsOf(report.described.full_names);
  }
  loading.done += 1;
  loading.text = "Summing up …";
  progressed();
  await sumUp();
  loading.text = "";
  progressed();
}

/** Build the pyramids of long rows now, so that no zoom waits for one. */
async function sumUp() {
  for (const row of lanes.flatMap(({ rows }) => rows ?? [])) {
    if (row.n < LONG_ROW) continue;
    row.pyramid ??= pyramidOf(row);
    await letOthersRun();
  }
}
