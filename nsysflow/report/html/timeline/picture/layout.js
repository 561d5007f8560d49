// How high is each lane, and where is it? All in CSS pixels from the top of the first lane.

const HEADER_PX = 20;
const LANE_GAP_PX = 3;
const TITLE_LINE_PX = 14; // a line of its own for the title where there is no column of titles
const DEPTH_PX = {
  steps: [20, 20],
  gaps: [26, 26],
  stream: [26, 14],
  phases: [17, 17],
  calls: [18, 12],
  host_stack: [16, 16],
  stack: [12, 12],
  profiler: [12, 12],
  worker: [14, 10],
  counter: [34, 34],
};

/** The column of titles: none on a narrow screen, where titles stand above their lanes. */
function titlesWidth(width) {
  if (width < 600) return 0;
  return width < 1000 ? 150 : 200;
}

/** Set `top` and `height` of all lanes that are shown; returns {items, pinned, height}. An item is a
 * group's header or a lane: {top, height, group, lane}, `lane` null for a header, `group` for what is
 * pinned: these come first, `pinned` px in all. */
function layOut(width) {
  const titleLine = titlesWidth(width) ? 0 : TITLE_LINE_PX;
  const items = [];
  let top = 0;
  const add = (group, lane) => {
    lane.top = top + titleLine;
    lane.height = laneHeight(lane);
    items.push({ top, height: lane.height + titleLine, group, lane });
    top += lane.height + titleLine + LANE_GAP_PX;
  };
  for (const lane of pinnedLanes()) add(null, lane);
  const pinned = top;
  for (const group of orderedGroups()) {
    if (!isShown(group) || !hasLanes(group)) continue;
    items.push({ top, height: HEADER_PX, group, lane: null });
    top += HEADER_PX + LANE_GAP_PX;
    if (group.open) for (const lane of lanesBelow(group)) add(group, lane);
  }
  return { items, pinned, height: top };
}

function laneHeight({ kind, depths }) {
  const [first, other] = DEPTH_PX[kind];
  return first + (depths - 1) * other;
}

/** [top, bottom) of one depth of a lane. */
function depthPlace({ kind, top }, depth) {
  const [first, other] = DEPTH_PX[kind];
  if (depth === 0) return [top, top + first - 1];
  const from = top + first + (depth - 1) * other;
  return [from, from + other - 1];
}

/** Open what hides a lane; says whether anything was closed. A hidden lane is shown again. */
function openGroupOf(lane) {
  if (isHidden(lane)) setHidden([lane], false);
  if (isPinned(lane)) return false;
  const group = groupOfLane(lane);
  const closed = [group, group.parent].filter((each) => each && !each.open);
  for (const each of closed) each.open = true;
  return closed.length > 0;
}

/** The rows that are shown, from the top down. */
function shownRows(layout) {
  return layout.items.flatMap(({ lane }) => lane?.rows ?? []);
}

/** The item at a height; undefined between items and below the last one. */
function itemAt(layout, y) {
  return layout.items.find(({ top, height }) => y >= top && y < top + height);
}
