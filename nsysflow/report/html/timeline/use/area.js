// Which area of the timeline is selected, and which one is kept to compare it with?

const AREA_MS = 80; // so long an area must rest before its tables are made
const WIDEN_SHARE = 0.02; // of the view: by so much a key moves the area's end

/** Select what lies between two times, in either order; of all lanes, or of some. */
function selectArea(one, other, some = null) {
  const [start, end] = [Math.min(one, other), Math.max(one, other)].map(Math.round);
  setArea({ start, end, lanes: some && some.map(({ id }) => id) });
}

/** The selected slice; else what is in view. */
function selectAreaHere() {
  const place = state.selected && placeOf(state.selected);
  if (place) selectArea(place.row.start[place.slice], place.row.end[place.slice]);
  else selectArea(state.view.start, state.view.end);
  say(areaWords(state.area));
}

function areaWords({ start, end }) {
  return `An area of ${shownAs("duration", end - start)} is selected; Enter leads to its tables`;
}

/** Move the end of the area. */
function widenArea(by) {
  if (!state.area) return selectAreaHere();
  const { start, end, lanes: ids } = state.area;
  const moved = Math.round(by * WIDEN_SHARE * (state.view.end - state.view.start));
  setArea({ start, end: Math.max(start, end + moved), lanes: ids });
}

/** Keep the area to compare the next one with it. */
function keepHere() {
  if (!state.area) selectAreaHere();
  keepArea(state.area);
  say("Kept as A: select another area to compare it");
}

function endAreas() {
  setArea(null);
  keepArea(null);
}

let areaTimer = 0;

/** Draw an area at once, and describe it once it rests. */
function followArea() {
  requestMarks();
  clearTimeout(areaTimer);
  areaTimer = setTimeout(showDetails, state.area ? AREA_MS : 0);
}

/** The lanes that a drag from one height of the canvas to another crosses; null within one lane. */
function lanesCrossed(one, other) {
  const [top, bottom] = [Math.min(one, other), Math.max(one, other)].map(inLayout);
  const crossed = surface.layout.items.filter((item) => item.top + item.height > top && item.top < bottom);
  const found = crossed.flatMap(({ lane, group }) => (lane ? [lane] : group.open ? [] : closedLanes(group)));
  return crossed.length > 1 && found.length ? found : null;
}

function closedLanes(group) {
  return [group, ...groupsBelow(group)].flatMap(lanesBelow);
}

/** [{title, idle, causes}] of each GPU: `idle` in ns, `causes` [cause, ns] by size. */
function idleOfGpus({ start, end }) {
  return lanes
    .filter((lane) => lane.kind === "gaps" && lane.rows && !isHidden(lane))
    .map((lane) => {
      const sums = idleWithin(lane, Math.round(start), Math.round(end));
      const causes = [...sums].map((ns, cause) => [cause, ns]).filter(([, ns]) => ns > 0);
      causes.sort(([, one], [, other]) => other - one);
      const [title] = longTitle(lane).split(": ", 1);
      return { title, idle: sums.reduce((sum, ns) => sum + ns, 0), causes };
    });
}

/** The area as a band with its length, and the one that is kept. */
function paintAreas(context, scale) {
  if (state.kept) paintArea(context, scale, state.kept, "A ");
  if (state.area && state.area !== state.kept) {
    paintArea(context, scale, state.area, state.kept ? "B " : "");
  }
}

function paintArea(context, scale, area, name) {
  const { theme, titles } = surface;
  const { start, end } = area;
  const left = titles + scale.x(start);
  const width = Math.max(scale.x(end) - scale.x(start), 1);
  context.fillStyle = theme.strong;
  for (const [top, height] of bandsOf(area)) {
    context.globalAlpha = 0.16;
    context.fillRect(left, top, width, height);
    context.globalAlpha = 1;
    context.fillRect(left, top, 1.5, height);
    context.fillRect(left + width - 1.5, top, 1.5, height);
  }
  context.font = `600 ${LABEL_PX + 1}px ${theme.font}`;
  const label = `${name}${shownAs("duration", end - start)}`;
  const room = textWidth(context, label) + 12;
  if (left + width < titles || left > surface.width) return;
  const x = Math.min(Math.max(left + (width - room) / 2, titles + 2), surface.width - room - 2);
  context.fillRect(x, AXIS_PX + 4, room, 18);
  context.fillStyle = theme.background;
  context.textBaseline = "middle";
  context.fillText(label, x + 6, AXIS_PX + 13.5);
}

/** [top, height] of what an area covers: the whole height, or some lanes. */
function bandsOf({ lanes: ids }) {
  if (!ids) return [[0, surface.height]];
  const items = surface.layout.items.filter(({ lane }) => lane && ids.includes(lane.id));
  return items.map(({ top, height }) => [onCanvas(top), height + LANE_GAP_PX]);
}
