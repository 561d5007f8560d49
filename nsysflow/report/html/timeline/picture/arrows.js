// How does the eye get from a launch to its kernel, and from a gap to what is to blame?

const HEAD_PX = 7;

/** Arrows of what is selected: from a call to its work, from a gap to its culprit. */
function paintArrows(context, scale) {
  if (!state.selected) return;
  const own = placeOf(state.selected);
  if (!own) return;
  for (const link of selectedLinks()) {
    const other = placeOf(link);
    if (!other) continue;
    const [from, to] = link.role === "launch" ? [other, own] : [own, other];
    drawArrow(context, scale, from, to, state.selected.table === "gaps");
  }
}

function drawArrow(context, scale, from, to, toCulprit) {
  const start = boxOf(from, scale);
  const end = boxOf(to, scale);
  if (!start || !end) return;
  const x0 = toCulprit ? Math.max(start.left, Math.min(start.right, surface.titles + 4)) : start.right;
  const x1 = toCulprit ? (end.left + end.right) / 2 : end.left;
  const down = end.top >= start.bottom;
  const y0 = down ? start.bottom : start.top;
  const y1 = toCulprit ? (down ? end.top : end.bottom) : (end.top + end.bottom) / 2;
  const { theme } = surface;
  // a wide line in the ground's colour keeps the arrow visible on bars of any colour
  for (const [colour, width] of [[theme.background, 5], [theme.strong, 2]]) {
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = width;
    drawCurve(context, x0, y0, x1, y1, toCulprit);
  }
}

/** From one point to another, leaving and arriving sideways, or upright at a culprit. */
function drawCurve(context, x0, y0, x1, y1, upright) {
  const away = upright ? (y1 - y0) * 0.6 : Math.max(Math.abs(x1 - x0) * 0.4, 24);
  context.beginPath();
  context.moveTo(x0, y0);
  if (upright) context.bezierCurveTo(x0, y0 + away, x1, y1 - away, x1, y1);
  else context.bezierCurveTo(x0 + away, y0, x1 - away, y1, x1, y1);
  context.stroke();
  const sign = Math.sign(y1 - y0) || 1;
  const half = HEAD_PX * 0.55;
  const [back, side] = upright ? [[0, -sign * HEAD_PX], [half, 0]] : [[-HEAD_PX, 0], [0, half]];
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 + back[0] + side[0], y1 + back[1] + side[1]);
  context.lineTo(x1 + back[0] - side[0], y1 + back[1] - side[1]);
  context.fill();
}
