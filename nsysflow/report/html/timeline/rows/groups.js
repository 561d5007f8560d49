// How are lanes put together? Per report its GPUs, then its threads. A group can be closed to one line.

const BUSY_THREADS = 3; // threads with the most slices are open at the start, the others closed

/** Groups from the top down: {title, parent, order, open, lanes}. Of several reports each has a group
 * of its own that is the parent of what follows, so that a whole rank can be closed. */
function groupsOf(report, several) {
  const top = several ? groupOf(reportTitle(report), null, 0) : null;
  const found = new Map();
  for (const lane of lanes) {
    if (lane.report !== report) continue;
    const [title] = lane.title.split(": ", 1);
    if (!found.has(title)) found.set(title, groupOf(title, top, lane.device === null ? 2 : 1));
    found.get(title).lanes.push(lane);
  }
  const sorted = [...found.values()].sort((one, other) => one.order - other.order);
  closeQuietThreads(sorted);
  return top ? [top, ...sorted] : sorted;
}

function reportTitle({ name, described }) {
  return described.clock_known ? name : `${name} (its clock is not aligned)`;
}

/** `order` is 0 for a report, 1 for a GPU, 2 for a thread. */
function groupOf(title, parent, order) {
  return { title, parent, order, open: true, lanes: [] };
}

/** What a lane is called beside its group's title. */
function shortTitle({ title }) {
  return title.split(": ").slice(1).join(": ") || title;
}

/** Threads that only the profiler worked on count as quiet, too. */
function closeQuietThreads(found) {
  const size = ({ lanes: members }) =>
    members.reduce((sum, { kind, count }) => sum + (kind === "profiler" ? 0 : count), 0);
  const threads = found.filter(({ order }) => order === 2);
  const busiest = [...threads].sort((one, other) => size(other) - size(one)).slice(0, BUSY_THREADS);
  for (const thread of threads) thread.open = size(thread) > 0 && busiest.includes(thread);
}

const groups = reports.flatMap((report) => groupsOf(report, reports.length > 1));

/** Whether nothing above a group is closed. */
function isShown({ parent }) {
  return !parent || parent.open;
}
