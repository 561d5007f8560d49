// What does one picture consist of? Bars as pixels first, then lines, labels and titles; over these what
// follows the pointer and the selection, so that neither draws the bars again.

/** Draw what has changed. The time it took is in `surface.drawnMs`. */
function paintTimeline() {
  const began = performance.now();
  const scale = lanesScale();
  if (surface.stale) paintBase(scale);
  surface.stale = false;
  paintMarks(scale);
  surface.drawnMs = performance.now() - began;
}

/** All that neither the pointer nor the selection changes. */
function paintBase(scale) {
  const labels = paintBars(scale);
  const { base: context, raster, ratio, theme, held } = surface;
  const pinned = labels.filter(({ row }) => isPinned(row.lane));
  const others = labels.filter(({ row }) => !isPinned(row.lane));
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.putImageData(raster.image, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  for (const [top, some, holds] of [
    [AXIS_PX + held, others, false],
    [AXIS_PX, pinned, true],
  ]) {
    drawClipped(context, surface.titles, top, () => {
      paintSteps(context, scale, holds);
      drawLabels(context, some, theme, ratio);
    });
    drawClipped(context, 0, top, () => paintTitles(context, holds));
  }
  context.fillStyle = theme.muted;
  if (held) context.fillRect(0, AXIS_PX + held - 2, surface.width, 1);
  paintAxis(context, scale);
  paintOverview();
  surface.pictures += 1;
}

/** The selection, its arrows, the areas, and where the pointer is. */
function paintMarks(scale) {
  const { context, base, ratio } = surface;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(base.canvas, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawClipped(context, surface.titles, AXIS_PX, () => {
    paintAreas(context, scale);
    paintSelected(context, scale);
    paintArrows(context, scale);
  });
  paintPointer(context, scale);
}

/** Draw only right of `left` and below `top`. */
function drawClipped(context, left, top, drawing) {
  context.save();
  context.beginPath();
  context.rect(left, top, surface.width - left, surface.height - top);
  context.clip();
  drawing();
  context.restore();
}

/** The bars of all lanes in sight; returns the places with room for a label. */
function paintBars(scale) {
  const { raster, theme, ratio, titles, layout } = surface;
  raster.clear(theme.ground);
  const labels = [];
  const fine = {
    start: scale.start,
    nsPerPixel: scale.nsPerPixel / ratio,
    left: Math.round(titles * ratio),
    width: Math.max(1, raster.width - Math.round(titles * ratio)),
    labelPx: NARROWEST_LABEL_PX * ratio,
  };
  const paintItem = (item) => {
    const top = onCanvas(item.top);
    if (top > surface.height || top + item.height < AXIS_PX) return;
    if (!item.lane) paintHeader(raster, item, top, fine);
    else paintLane(raster, item.lane, fine, labels);
  };
  layout.items.filter(({ group }) => group).forEach(paintItem);
  const px = (y) => Math.round(y * ratio);
  raster.bar(0, px(AXIS_PX), raster.width, px(AXIS_PX + surface.held), theme.ground);
  layout.items.filter(({ group }) => !group).forEach(paintItem);
  return labels;
}

function paintHeader(raster, { group, height }, top, fine) {
  const { theme, ratio } = surface;
  const px = (y) => Math.round(y * ratio);
  raster.bar(0, px(top), raster.width, px(top + height), theme.header);
  if (group.open) return;
  const rows = summaryRows(group);
  const each = (height - 6) / Math.max(rows.length, 1);
  rows.forEach((row, at) => {
    const from = top + 3 + at * each;
    const tones = tonesOf(theme, row.lane.table.key);
    drawRow(raster, fine, row, px(from), px(from + each), tones, surface.marked !== null);
  });
}

/** What a closed group shows of its lanes: the outermost row of the busiest one or two. */
function summaryRows(group) {
  const below = groups.filter(({ parent }) => parent === group);
  const of = [group, ...below].flatMap(lanesBelow);
  const kinds = ["stream", "gaps", "calls", "phases"];
  const rows = of.filter(({ rows, kind }) => rows && kinds.includes(kind)).map(({ rows }) => rows[0]);
  return rows.sort((one, other) => other.n - one.n).slice(0, 2);
}

function paintLane(raster, lane, fine, labels) {
  const { theme, ratio, marked } = surface;
  const px = (y) => Math.round(onCanvas(y) * ratio);
  raster.bar(fine.left, px(lane.top), raster.width, px(lane.top + lane.height), theme.outside);
  for (const [start, end] of lane.report.selection) {
    const x = (time) => fine.left + Math.round((time - fine.start) / fine.nsPerPixel);
    const left = Math.max(x(start), fine.left);
    raster.bar(left, px(lane.top), x(end), px(lane.top + lane.height), theme.ground);
  }
  if (lane.kind === "counter" && lane.table.has("start", "value")) {
    drawCounter(raster, fine, lane, px(lane.top), px(lane.top + lane.height), theme.counter);
  }
  const tones = tonesOf(theme, lane.table.key);
  for (const row of lane.rows ?? []) {
    const [top, bottom] = depthPlace(lane, row.depth);
    const faded = marked?.tables.has(lane.table.key);
    const room = px(bottom) - px(top) >= 11 * ratio ? labels : null;
    drawRow(raster, fine, row, px(top), px(bottom), tones, faded, room);
    if (lane.kind === "host_stack") labelRuns(row, fine, px(top), px(bottom), labels);
    const found = marked?.slices.get(row);
    if (found) drawMarked(raster, fine, row, found, px(top), px(bottom), tones);
  }
}

const STEP_LINE_PX = 12; // steps nearer to each other than this get no lines

/** Lines where steps start, through the lanes of their report: those that are pinned, or the others. */
function paintSteps(context, scale, pinned) {
  context.fillStyle = surface.theme.line;
  for (const report of reports) {
    const steps = lanes.find((lane) => lane.report === report && lane.kind === "steps" && lane.rows);
    const items = surface.layout.items.filter(
      ({ lane, group }) => lane?.report === report && !group === pinned
    );
    if (!steps || !items.length) continue;
    const parts = pinned ? items.map((item) => [item, item]) : [[items[0], items.at(-1)]];
    for (const [first, last] of parts) {
      paintStepLines(context, scale, steps.rows[0], first.top, last.top + last.height);
    }
  }
}

function paintStepLines(context, scale, row, top, bottom) {
  const from = firstFrom(row.start, scale.start);
  const to = firstAbove(row.start, scale.time(scale.width));
  if (to - from > scale.width / STEP_LINE_PX) return;
  for (let step = from; step < to; step++) {
    const x = surface.titles + Math.round(scale.x(row.start[step]));
    context.fillRect(x, onCanvas(top), 1, bottom - top);
  }
}

/** An outline around what is selected, and a thinner one around what the pointer is on. */
function paintSelected(context, scale) {
  const selected = state.selected && placeOf(state.selected);
  if (surface.hover?.row) outlineSlice(context, scale, surface.hover, 1, surface.theme.text);
  if (selected) outlineSlice(context, scale, selected, 2.5, surface.theme.strong);
}

function outlineSlice(context, scale, place, width, colour) {
  const box = boxOf(place, scale);
  if (!box) return;
  context.strokeStyle = colour;
  context.lineWidth = width;
  const left = Math.max(box.left, surface.titles - 4);
  const right = Math.min(box.right, surface.width + 4);
  const length = Math.max(right - left, 3);
  const height = box.bottom - box.top;
  drawClipped(context, surface.titles, topOf(place.row.lane), () =>
    context.strokeRect(left - width / 2, box.top - width / 2, length + width, height + width)
  );
}

/** Where a slice is on the canvas, in CSS pixels; the header of its group where that is closed; null
 * where its lane is hidden. */
function boxOf({ row, slice }, scale) {
  if (isHidden(row.lane)) return null;
  const left = surface.titles + scale.x(row.start[slice]);
  const right = Math.max(surface.titles + scale.x(row.end[slice]), left + 1);
  const { lane, depth } = row;
  const [top, bottom] = isLaneShown(lane) ? depthPlace(lane, depth) : headerPlace(lane);
  return { left, right, top: onCanvas(top), bottom: onCanvas(bottom) };
}

function isLaneShown(lane) {
  return surface.layout.items.some(({ lane: shown }) => shown === lane);
}

/** [top, bottom) of the header that a lane is closed into. */
function headerPlace(lane) {
  const group = groupOfLane(lane);
  const { top, height } = surface.layout.items.find(
    (item) => !item.lane && item.group === (isShown(group) ? group : group.parent)
  );
  return [top + 3, top + height - 3];
}
