// What stands left of the lanes and above them? Titles, and the axis of times.

const TITLE_PX = 12;

/** Of what is pinned, or of the others. */
function paintTitles(context, pinned) {
  const { layout, titles } = surface;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const item of layout.items) {
    const top = onCanvas(item.top);
    if (!item.group !== pinned) continue;
    if (top > surface.height || top + item.height < 0) continue;
    if (item.lane) paintLaneTitle(context, item.lane, top, titles, pinned ? longTitle : shortTitle);
    else paintGroupTitle(context, item.group, top, item.height);
  }
}

function paintGroupTitle(context, group, top, height) {
  const { title, open, parent, lanes: members } = group;
  const hidden = members.filter(isHidden).length;
  const { theme, titles } = surface;
  context.font = `600 ${TITLE_PX}px ${theme.font}`;
  const room = open ? surface.width : titles || 140;
  const cut = cutTo(context, `${open ? "▾" : "▸"} ${title}${hidden ? ` (${hidden} hidden)` : ""}`, room - 12);
  if (!open) {
    context.fillStyle = theme.background;
    context.fillRect(0, top, titles ? titles - 1 : context.measureText(cut).width + 14, height);
  }
  context.fillStyle = theme.text;
  context.fillText(cut, parent ? 14 : 6, top + height / 2 + 0.5);
}

function paintLaneTitle(context, lane, top, titles, titleOf) {
  const { theme } = surface;
  context.font = `${TITLE_PX}px ${theme.font}`;
  const focused = surface.lane === lane;
  if (titles) {
    context.fillStyle = theme.background;
    context.fillRect(0, top, titles - 1, lane.height);
    context.fillStyle = focused ? theme.strong : theme.muted;
    const middle = top + Math.min(lane.height, 26) / 2;
    context.fillText(cutTo(context, titleOf(lane), titles - 30), 18, middle + 0.5);
    if (focused) context.fillRect(0, top, 3, lane.height);
    context.fillStyle = theme.line;
    context.fillRect(titles - 1, top, 1, lane.height);
  } else {
    context.fillStyle = focused ? theme.strong : theme.muted;
    context.fillText(cutTo(context, titleOf(lane), surface.width - 12), 6, top + TITLE_LINE_PX / 2);
  }
}

/** The ticks in view, and the unit of their labels. */
function axisInView(scale) {
  const origin = about.timeline.start_ns;
  const end = scale.time(scale.width) - origin;
  const axis = ticksOf(scale.start - origin, end, scale.width);
  return { axis, unit: axisUnit(axis, end - axis.base) };
}

/** Times above the lanes, from the start of the trace. */
function paintAxis(context, scale) {
  const { theme, titles, width } = surface;
  const { axis, unit } = axisInView(scale);
  context.fillStyle = theme.background;
  context.fillRect(0, 0, width, AXIS_PX);
  context.fillStyle = theme.line;
  context.fillRect(0, AXIS_PX - 1, width, 1);
  context.font = `${LABEL_PX}px ${theme.font}`;
  context.textBaseline = "middle";
  const corner = axis.base ? timeIn(axis.base, unit) : "";
  const left = Math.max(titles, corner ? textWidth(context, corner) + 14 : 0);
  context.fillStyle = theme.text;
  context.fillText(corner, 6, AXIS_PX / 2 - 1);
  for (const time of axis.ticks) {
    const label = tickLabel(time, axis, unit);
    paintTick(context, titles + scale.x(time + about.timeline.start_ns), label, left);
  }
}

/** A tick, and its label where it is neither cut off nor in the way of the corner's. */
function paintTick(context, x, label, left) {
  const { theme, width } = surface;
  context.fillStyle = theme.muted;
  context.fillRect(x, AXIS_PX - 7, 1, 7);
  if (x < left - 2 || x + textWidth(context, label) + 6 > width) return;
  context.fillText(label, x + 4, AXIS_PX / 2 - 1);
}

/** A line where the pointer is, and its time. */
function paintPointer(context, scale) {
  const { theme, pointerX: x } = surface;
  if (x === null || x < surface.titles) return;
  const time = scale.time(x - surface.titles) - about.timeline.start_ns;
  const label = timeIn(time, axisInView(scale).unit);
  context.font = `${LABEL_PX}px ${theme.font}`;
  context.textBaseline = "middle";
  const width = context.measureText(label).width + 8;
  const left = Math.min(x + 1, surface.width - width);
  context.fillStyle = theme.strong;
  context.globalAlpha = 0.5;
  context.fillRect(x, AXIS_PX, 1, surface.height);
  context.globalAlpha = 1;
  context.fillStyle = theme.text;
  context.fillRect(left, 2, width, AXIS_PX - 5);
  context.fillStyle = theme.background;
  context.fillText(label, left + 4, AXIS_PX / 2 - 1);
}
