// What do the mouse, the touch pad and fingers do on the lanes?

const CLICK_PX = 5; // a press that moved no further is a click
const NEAR_PX = 3; // so far beside a thin slice a click still hits it
const WHEEL_STEP = 0.0022; // zoom per unit of the wheel
const SCROLLING_MS = 400; // a page that scrolls under the pointer goes on scrolling

/** What is at a point of the canvas: {row, slice}, {group}, {lane} or null. */
function hitAt(x, y) {
  if (y < AXIS_PX) return null;
  const item = itemAt(surface.layout, inLayout(y));
  if (!item) return null;
  if (!item.lane) return { group: item.group };
  if (x < surface.titles) return { lane: item.lane, title: true };
  const row = (item.lane.rows ?? []).find(({ depth }) => {
    const [top, bottom] = depthPlace(item.lane, depth);
    return inLayout(y) >= top && inLayout(y) <= bottom;
  });
  const slice = row ? sliceAt(row, x - surface.titles) : -1;
  return slice >= 0 ? { row, slice } : { lane: item.lane };
}

/** The slice at a pixel; of several the longest. -1 where none is near. */
function sliceAt(row, x) {
  const scale = lanesScale();
  const time = scale.time(x);
  const inside = firstAbove(row.end, time);
  const length = inside < row.n ? row.end[inside] - row.start[inside] : 0;
  if (length >= scale.nsPerPixel && row.start[inside] <= time) return inside;
  const from = firstAbove(row.end, scale.time(x - NEAR_PX));
  const to = firstFrom(row.start, scale.time(x + NEAR_PX));
  let best = -1;
  let longest = -1;
  for (let slice = from; slice < to; slice++) {
    const length = row.end[slice] - row.start[slice];
    if (length > longest) [best, longest] = [slice, length];
  }
  return best;
}

/** Listen on the canvas of the lanes. */
function listenToPointer() {
  const { canvas } = surface;
  const pointers = new Map();
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    drag = startOfDrag(event, pointers);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event.offsetX);
    if (drag) dragTo(drag, event, pointers);
    else hoverAt(event);
  });
  const ended = (event) => {
    pointers.delete(event.pointerId);
    if (drag && !drag.moved && event.type === "pointerup") clickAt(event);
    drag = null;
    canvas.style.cursor = "";
  };
  canvas.addEventListener("pointerup", ended);
  canvas.addEventListener("pointercancel", ended);
  canvas.addEventListener("pointerleave", () => hoverAt(null));
  canvas.addEventListener("dblclick", zoomToSelected);
  listenToWheel(canvas);
}

function startOfDrag(event, pointers) {
  const scale = lanesScale();
  return {
    x: event.offsetX,
    y: event.offsetY,
    view: state.view,
    scroll: scrolled(),
    area: (event.shiftKey || surface.selecting) && event.offsetX >= surface.titles,
    at: scale.time(event.offsetX - surface.titles),
    track: event.pointerType === "mouse" ? trackAt(event) : null,
    fingers: [...pointers.values()],
    moved: pointers.size > 1,
  };
}

/** The lane or group whose title is pressed. */
function trackAt({ offsetX, offsetY }) {
  if (offsetX >= surface.titles) return null;
  const hit = hitAt(offsetX, offsetY);
  return hit?.group ?? hit?.lane ?? null;
}

function dragTo(drag, event, pointers) {
  const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
  if (!drag.moved && Math.hypot(dx, dy) < CLICK_PX) return;
  drag.moved = true;
  surface.tip.hidden = true;
  if (drag.track) dragTitle(drag.track, event.offsetY);
  else if (pointers.size > 1) pinchTo(drag, [...pointers.values()]);
  else if (drag.area) dragArea(drag, event);
  else {
    const ns = (drag.view.end - drag.view.start) / lanesScale().width;
    setView(drag.view.start - dx * ns, drag.view.end - dx * ns);
    if (event.pointerType === "mouse") surface.lanesBox.scrollTop = drag.scroll - dy;
    surface.canvas.style.cursor = "grabbing";
  }
}

function dragArea({ at, y }, event) {
  const x = Math.max(event.offsetX, surface.titles);
  selectArea(at, lanesScale().time(x - surface.titles), lanesCrossed(y, event.offsetY));
}

/** Keep the times under two fingers where the fingers are. */
function pinchTo({ fingers, view }, now) {
  if (fingers.length < 2) return;
  const ns = (view.end - view.start) / lanesScale().width;
  const [a, b] = fingers.map((x) => view.start + (x - surface.titles) * ns);
  const [left, right] = now;
  if (Math.abs(right - left) < 8) return;
  const nsPerPixel = Math.abs((b - a) / (right - left));
  const start = a - (left - surface.titles) * nsPerPixel;
  setView(start, start + nsPerPixel * lanesScale().width);
}

function clickAt(event) {
  surface.canvas.focus({ preventScroll: true });
  const hit = hitAt(event.offsetX, event.offsetY);
  if (hit?.group) toggleGroup(hit.group);
  else if (hit?.title) openLaneList(hit.lane);
  else if (hit?.row) {
    surface.lane = hit.row.lane;
    select(hit.row.lane.report.number, hit.row.lane.table.key, tableRow(hit.row, hit.slice));
  } else {
    if (state.area) setArea(null);
    select();
  }
}

function toggleGroup(group) {
  group.open = !group.open;
  fitSurface();
  say(`${group.title} ${group.open ? "opened" : "closed"}`);
}

/** What is under the pointer after the picture has moved. */
function hoverAgain() {
  if (surface.pointer) hoverAt(surface.pointer);
}

function hoverAt(event) {
  const hit = event ? hitAt(event.offsetX, event.offsetY) : null;
  surface.pointer = event;
  surface.pointerX = event ? event.offsetX : null;
  surface.hover = hit;
  surface.canvas.style.cursor = hit?.group || hit?.row || hit?.title ? "pointer" : "";
  showTip(hit, event);
  requestMarks();
}

/** The wheel zooms at the pointer, sideways and with shift it pans; over the titles it scrolls. */
function listenToWheel(canvas) {
  let pageScrolled = -Infinity;
  addEventListener("wheel", (event) => {
    if (event.target !== canvas) pageScrolled = event.timeStamp;
  }, { passive: true });
  canvas.addEventListener("wheel", (event) => {
    const titles = event.offsetX < surface.titles;
    const scrolling = event.timeStamp - pageScrolled < SCROLLING_MS;
    if ((titles || scrolling) && !event.ctrlKey && !event.metaKey) {
      if (scrolling) pageScrolled = event.timeStamp;
      return;
    }
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    const { deltaX, deltaY, shiftKey } = event;
    const [dx, dy] = shiftKey ? [deltaY || deltaX, 0] : [deltaX, deltaY];
    const scale = lanesScale();
    const time = scale.time(event.offsetX - surface.titles);
    if (Math.abs(dx) > Math.abs(dy)) panBy((dx * lines) / scale.width);
    else zoomAt(time, Math.exp(-dy * lines * wheelStep(event)));
  }, { passive: false });
}

/** A pinch on a touch pad comes as small steps of the wheel with ctrl. */
function wheelStep(event) {
  return event.ctrlKey && Math.abs(event.deltaY) < 40 ? 4 * WHEEL_STEP : WHEEL_STEP;
}
