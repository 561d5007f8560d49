// How are lanes put together? Per report its GPUs, then its threads. A group can be closed to one line.

const BUSY_THREADS = 3; // threads with the most slices are open at the start, the others closed

/** Groups from the top down: {title, parent, order, open, lanes}. Of several reports each has a group
 * of its own that is the parent of what follows, so that a whole rank can be closed. */
function groupsOf(report, several) {
  const top = several ? groupOf(reportTitle(report), null, 0) : null;
  const found = new Map();
  for (const lane of lanes) {
    if (lane.report !== report) continue;
    const [title, order] = groupTitle(lane);
    if (!found.has(title)) found.set(title, groupOf(title, top, order));
    found.get(title).lanes.push(lane);
  }
  const sorted = [...found.values()].sort((one, other) => one.order - other.order);
  closeQuiet(sorted);
  return top ? [top, ...sorted] : sorted;
}

function reportTitle({ name, described }) {
  return described.clock_known ? name : `${name} (its clock is not aligned)`;
}

/** In which group a lane is, and its place among the others: apart are streams without work in the
 * judged part, and what the profiler itself did. */
function groupTitle(lane) {
  const [title] = lane.title.split(": ", 1);
  if (lane.kind === "profiler") return ["profiler", 4];
  if (lane.kind === "stream" && !lane.judged) return [`${title}, quiet streams`, 2];
  return [title, lane.device === null ? 3 : 1];
}

/** `order` is 0 for a report, 1 for a GPU, 2 for its quiet streams, 3 for a thread, 4 for the
 * profiler. */
function groupOf(title, parent, order) {
  return { title, parent, order, open: true, lanes: [] };
}

/** What a lane is called beside its group's title. */
function shortTitle({ title, kind }) {
  const [owner, ...own] = title.split(": ");
  return kind === "profiler" || !own.length ? owner : own.join(": ");
}

/** Close all but GPUs and the threads with most slices. */
function closeQuiet(found) {
  const size = ({ lanes: members }) => members.reduce((sum, { count }) => sum + count, 0);
  const threads = found.filter(({ order }) => order === 3);
  const busiest = [...threads].sort((one, other) => size(other) - size(one)).slice(0, BUSY_THREADS);
  for (const group of found) group.open = group.order === 1 || busiest.includes(group);
}

const groups = reports.flatMap((report) => groupsOf(report, reports.length > 1));

/** Whether nothing above a group is closed. */
function isShown({ parent }) {
  return !parent || parent.open;
}
