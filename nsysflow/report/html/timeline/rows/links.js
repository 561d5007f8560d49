// What belongs to a slice? The call that launched it, the work that a call launched, what is to blame
// for a gap.

const MOST_WORK = 64; // arrows from one call: a CUDA graph has thousands of kernels

/** [{role, report, table, row}]: role is "launch", "work", "culprit", or "end" for the launch that ends
 * a gap whose cause is no call and no operation. Needs the link columns. */
function linksOf({ report, table, row }) {
  const { operations, gaps } = reports[report].tables;
  const link = (role, to, at) => ({ role, report, table: to, row: at });
  if (table === "operations") return launchOf(operations, row, link);
  if (table === "calls") return workOf(operations, row).map((at) => link("work", "operations", at));
  if (table !== "gaps" || !gaps.has("culprit_call", "culprit_op")) return [];
  const role = about.timeline.causes[gaps.cause[row]].blames ? "culprit" : "end";
  if (gaps.culprit_call[row]) return [link(role, "calls", gaps.culprit_call[row] - 1)];
  if (gaps.culprit_op[row]) return [link("culprit", "operations", gaps.culprit_op[row] - 1)];
  return [];
}

function launchOf(operations, row, link) {
  const call = operations.call?.[row];
  return call ? [link("launch", "calls", call - 1)] : [];
}

/** The rows of the operations that a call launched. */
function workOf(operations, call) {
  const found = [];
  if (!operations.call) return found;
  for (let row = 0; row < operations.n && found.length < MOST_WORK; row++) {
    if (operations.call[row] === call + 1) found.push(row);
  }
  return found;
}

let linkCache = { of: null, loaded: 0, links: [] };

/** The links of what is selected, looked up once. */
function selectedLinks() {
  if (linkCache.of !== state.selected || linkCache.loaded !== loading.done) {
    const links = state.selected ? linksOf(state.selected) : [];
    linkCache = { of: state.selected, loaded: loading.done, links };
  }
  return linkCache.links;
}
