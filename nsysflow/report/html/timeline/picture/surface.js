// On what is the timeline drawn? The elements of the section, their sizes, and when to draw again.

const AXIS_PX = 26;
const OVERVIEW_PX = 58;
const LEAST_LANES_PX = 160;
const MOST_PINNED = 0.6; // of the height: what is pinned stays in place while the others scroll

/** Everything that is drawn on and what it depends on; sizes in CSS pixels. */
const surface = {
  lanesBox: null, // scrolls; holds a canvas that stays in place
  canvas: null,
  context: null,
  base: null, // the picture without what follows the pointer and the selection
  stale: true, // whether that has to be drawn again
  pictures: 0, // how often it was drawn
  overview: null,
  raster: null,
  width: 0,
  height: 0,
  ratio: 1,
  titles: 0,
  held: 0, // so many px at the top do not scroll
  layout: null,
  theme: null,
  hover: null, // {row, slice}, {group} or null
  pointer: null, // the last event of the pointer while it is over the lanes
  pointerX: null, // where it is there
  brushed: null, // what the overview shows while its brush is dragged
  selecting: false, // whether a drag selects an area without Shift, too
  marked: null, // what stands out: see marks.js; null where nothing was asked for
  lane: null, // the lane that the keyboard is in
  drawnMs: 0,
};

/** Make the canvases inside the timeline's section. */
function makeSurface() {
  surface.canvas = make("canvas", {
    id: "timeline-canvas",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "timeline",
    "aria-label": "Timeline of GPUs and host threads. Press ? for the keys.",
    "aria-describedby": "timeline-said",
  });
  surface.spacer = make("div", { id: "timeline-spacer" });
  surface.lanesBox = make("div", { id: "timeline-lanes" }, surface.canvas, surface.spacer);
  surface.overview = make("canvas", { id: "timeline-overview", "aria-hidden": "true" });
  surface.context = surface.canvas.getContext("2d", { alpha: false });
  surface.base = make("canvas").getContext("2d", { alpha: false });
}

function readSurfaceTheme() {
  surface.theme = readTheme();
  surface.overviewPicture = null;
  requestDraw();
}

/** Follow the size of the window: all of the lanes if they fit, else they scroll. */
function fitSurface() {
  const { lanesBox, canvas, overview } = surface;
  surface.ratio = devicePixelRatio || 1;
  surface.titles = titlesWidth(lanesBox.clientWidth);
  surface.layout = layOut(lanesBox.clientWidth);
  const whole = surface.layout.height + AXIS_PX + 6;
  const room = Math.max(LEAST_LANES_PX, Math.round(innerHeight * 0.72));
  surface.held = surface.layout.pinned < room * MOST_PINNED ? surface.layout.pinned : 0;
  lanesBox.style.height = `${Math.min(whole, room)}px`;
  surface.width = lanesBox.clientWidth;
  surface.height = Math.min(whole, room);
  surface.spacer.style.height = `${Math.max(0, whole - surface.height)}px`;
  sizeCanvas(canvas, surface.width, surface.height);
  sizeCanvas(surface.base.canvas, surface.width, surface.height);
  sizeCanvas(overview, surface.width, OVERVIEW_PX);
  surface.raster = new Raster(canvas.width, canvas.height);
  surface.overviewPicture = null;
  requestDraw();
}

function sizeCanvas(canvas, width, height) {
  canvas.width = Math.max(1, Math.round(width * surface.ratio));
  canvas.height = Math.max(1, Math.round(height * surface.ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

let asked = 0;

/** Draw once before the next picture of the screen. */
function requestDraw() {
  surface.stale = true;
  requestMarks();
}

/** Draw only what follows the pointer and the selection. */
function requestMarks() {
  asked ||= requestAnimationFrame(() => {
    asked = 0;
    if (surface.theme) paintTimeline();
  });
}

/** Pixels and times of the lanes, right of their titles. */
function lanesScale() {
  return scaleOf(state.view, Math.max(1, surface.width - surface.titles));
}

/** How far the lanes are scrolled, in CSS pixels. */
function scrolled() {
  return surface.lanesBox.scrollTop;
}

/** A height in the lanes' layout as one on the canvas, and back. */
function onCanvas(y) {
  return y < surface.held ? y + AXIS_PX : y - scrolled() + AXIS_PX;
}

function inLayout(y) {
  return y - AXIS_PX < surface.held ? y - AXIS_PX : y + scrolled() - AXIS_PX;
}

/** Above which height of the canvas nothing of a lane, or of what scrolls, is drawn. */
function topOf(lane) {
  return lane && isPinned(lane) ? AXIS_PX : AXIS_PX + surface.held;
}
