// How long is a stretch, and how much of it does each GPU idle, and why?

/** Measure between two times, in either order. */
function measureBetween(one, other) {
  surface.measured = { start: Math.round(Math.min(one, other)), end: Math.round(Math.max(one, other)) };
  showDetails();
  requestDraw();
}

/** The selected slice; else what is in view. */
function measureSelected() {
  const place = state.selected && placeOf(state.selected);
  if (place) measureBetween(place.row.start[place.slice], place.row.end[place.slice]);
  else measureBetween(state.view.start, state.view.end);
}

function endMeasure() {
  surface.measured = null;
  showDetails();
  requestDraw();
}

/** [{title, idle, causes}] of each GPU: `idle` in ns, `causes` [cause, ns] by size. */
function idleOfGpus({ start, end }) {
  return lanes
    .filter(({ kind, rows }) => kind === "gaps" && rows)
    .map((lane) => {
      const sums = [...idleWithin(lane, start, end)].map((ns) => Math.round(ns));
      const causes = sums.map((ns, cause) => [cause, ns]).filter(([, ns]) => ns > 0);
      causes.sort(([, one], [, other]) => other - one);
      const [title] = lane.title.split(": ", 1);
      const name = reports.length > 1 ? `${lane.report.name}, ${title}` : title;
      return { title: name, idle: sums.reduce((sum, ns) => sum + ns, 0), causes };
    });
}

/** The stretch as a band with its length. */
function paintMeasured(context, scale) {
  if (!surface.measured) return;
  const { theme, titles, height } = surface;
  const { start, end } = surface.measured;
  const left = titles + scale.x(start);
  const width = Math.max(scale.x(end) - scale.x(start), 1);
  context.fillStyle = theme.strong;
  context.globalAlpha = 0.16;
  context.fillRect(left, 0, width, height);
  context.globalAlpha = 1;
  context.fillRect(left, 0, 1.5, height);
  context.fillRect(left + width - 1.5, 0, 1.5, height);
  context.font = `600 ${LABEL_PX + 1}px ${theme.font}`;
  const label = shownAs("duration", end - start);
  const room = textWidth(context, label) + 12;
  const x = Math.min(Math.max(left + (width - room) / 2, titles + 2), surface.width - room - 2);
  context.fillRect(x, AXIS_PX + 4, room, 18);
  context.fillStyle = theme.background;
  context.textBaseline = "middle";
  context.fillText(label, x + 6, AXIS_PX + 13.5);
}
