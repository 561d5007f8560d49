// What does the judged part look like, and which part of it is shown? A strip with a brush. It has the
// whole trace once more than the judged part is shown.

const BRUSH_GRIP_PX = 8;
const LEAST_BRUSH_PX = 6;

/** The rows that the strip shows per GPU: its busiest stream, and its gaps. */
function overviewRows() {
  const gpus = groups.filter(({ order }) => order === 1);
  return gpus.flatMap(({ lanes: members }) => {
    const loaded = members.filter(({ rows }) => rows);
    const [stream] = loaded.filter(({ kind }) => kind === "stream");
    const [gaps] = loaded.filter(({ kind }) => kind === "gaps");
    return [stream?.rows[0], gaps?.rows[0]].filter(Boolean);
  });
}

/** [start, end] of the judged parts of all reports, with a little room; null without any. */
function judgedSpan() {
  const judged = reports.flatMap((report) => report.judged);
  if (!judged.length) return null;
  return withRoom(Math.min(...judged.map(([start]) => start)), Math.max(...judged.map(([, end]) => end)));
}

/** {start, end} of what the strip shows; it stays while the brush is dragged. */
function overviewSpan() {
  if (surface.brushed) return surface.brushed;
  const { start_ns: first, end_ns: last } = about.timeline;
  const [start, end] = judgedSpan() ?? [first, last];
  const { view } = state;
  return view.start >= start && view.end <= end ? { start, end } : { start: first, end: last };
}

/** The strip without its brush; kept until its span, data, size, theme or marks change. */
function overviewPicture(width, height, { start, end }) {
  const { theme, ratio, marked } = surface;
  const raster = new Raster(width, height);
  raster.clear(theme.outside);
  const scale = { start, nsPerPixel: Math.max(end - start, 1) / width, left: 0, width };
  const rows = overviewRows();
  const marks = Math.round(8 * ratio);
  const each = (height - marks - 2) / Math.max(rows.length, 1);
  rows.forEach((row, at) => {
    const [top, bottom] = [at, at + 1].map((rank) => Math.round(marks + rank * each));
    drawRow(raster, scale, row, top, bottom - 1, tonesOf(theme, row.lane.table.key), false);
  });
  for (const [row, found] of marked?.slices ?? []) {
    const strong = Array.from({ length: row.kinds }, () => ({ full: theme.accent }));
    drawMarked(raster, scale, row, found, 0, marks - 1, strong);
  }
  return raster.image;
}

function paintOverview() {
  const { overview, theme, ratio } = surface;
  const context = overview.getContext("2d");
  const span = overviewSpan();
  if (span.start !== surface.overviewStart || span.end !== surface.overviewEnd) {
    [surface.overviewStart, surface.overviewEnd] = [span.start, span.end];
    surface.overviewPicture = null;
  }
  surface.overviewPicture ??= overviewPicture(overview.width, overview.height, span);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.putImageData(surface.overviewPicture, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const { left, right } = brushPlace();
  context.fillStyle = theme.background;
  context.globalAlpha = 0.6;
  context.fillRect(0, 0, left, OVERVIEW_PX);
  context.fillRect(right, 0, surface.width - right, OVERVIEW_PX);
  context.globalAlpha = 1;
  context.strokeStyle = theme.strong;
  context.lineWidth = 2;
  context.strokeRect(left, 1, right - left, OVERVIEW_PX - 2);
}

/** Where the brush is, in CSS pixels; never too narrow to be seen. */
function brushPlace() {
  const { start: first, end: last } = overviewSpan();
  const x = (time) => ((time - first) / Math.max(last - first, 1)) * surface.width;
  const [left, right] = [x(state.view.start), x(state.view.end)];
  const missing = Math.max(0, LEAST_BRUSH_PX - (right - left)) / 2;
  return { left: left - missing, right: right + missing };
}

/** Drag the brush or one of its edges; a press beside it brings it there. */
function listenToOverview() {
  const { overview } = surface;
  let drag = null;
  const timeAt = (event) => {
    const { start: first, end: last } = overviewSpan();
    return first + (event.offsetX / Math.max(surface.width, 1)) * (last - first);
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    surface.brushed = overviewSpan();
    const { start, end } = state.view;
    const { left, right } = brushPlace();
    const near = (x) => right - left > 3 * BRUSH_GRIP_PX && Math.abs(event.offsetX - x) < BRUSH_GRIP_PX;
    const inside = event.offsetX >= left && event.offsetX <= right;
    if (!inside && !near(left) && !near(right)) {
      const half = (end - start) / 2;
      setView(timeAt(event) - half, timeAt(event) + half);
    }
    const edge = near(left) ? "start" : near(right) ? "end" : "both";
    drag = { edge, from: timeAt(event), view: state.view };
  });
  overview.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const moved = timeAt(event) - drag.from;
    const { start, end } = drag.view;
    if (drag.edge === "both") setView(start + moved, end + moved);
    else if (drag.edge === "start") setView(Math.min(start + moved, end - NARROWEST_NS), end);
    else setView(start, Math.max(end + moved, start + NARROWEST_NS));
  });
  for (const done of ["pointerup", "pointercancel"]) {
    overview.addEventListener(done, () => {
      drag = surface.brushed = null;
      requestDraw();
    });
  }
}
