// How does the timeline come to life?

const RESIZE_MS = 60;

/** Put everything into the section, decode, draw. Called once, when all scripts are read. */
async function startTimeline() {
  makeSurface();
  surface.legend = makeLegend();
  surface.details = make("aside", { id: "timeline-details", tabindex: -1, "aria-label": "Details" });
  surface.tip = make("div", { id: "timeline-tip", hidden: true });
  surface.help = makeHelp();
  surface.list = makeLaneList();
  surface.progress = make("p", { id: "timeline-progress", role: "status" }, loading.text);
  surface.spoken = make("p", { id: "timeline-said", class: "unseen", "aria-live": "polite" });
  const drawn = make("div", { id: "timeline-drawn" }, surface.overview, surface.lanesBox);
  document.getElementById("timeline").replaceChildren(
    make("div", { id: "timeline-head" }, make("h2", {}, "Timeline"), makeTools(), surface.progress),
    make("div", { id: "timeline-body" }, drawn, surface.details),
    surface.legend, surface.tip, surface.help, surface.list, surface.spoken,
  );
  fitSurface();
  readSurfaceTheme();
  showDetails();
  listenToAll();
  await loadAll(openTimeline, tableArrived);
}

function makeTools() {
  const tool = (label, what, act) => button(label, act, { title: what, "aria-label": what });
  return make(
    "div",
    { id: "timeline-tools", role: "toolbar", "aria-label": "Timeline" },
    tool("Steps", "Show typical steps (t)", showTypicalSteps),
    tool("All", "Show the whole trace (0)", showWholeTrace),
    tool("−", "Zoom out (-)", () => zoomBy(1 / ZOOM_STEP)),
    tool("+", "Zoom in (+)", () => zoomBy(ZOOM_STEP)),
    tool("Longer gap", "Back to the longer gap (G)", () => moveToGap(true)),
    tool("Longest gap", "The longest gap, then the next longest (g)", () => moveToGap(false)),
    makeSearch(),
    makeAreaTool(),
    tool("Lanes", "Pin, hide and move lanes (l)", () => openLaneList()),
    tool("Keys", "Show the keys (?)", () => surface.help.showModal()),
  );
}

/** While it is pressed, a drag selects an area. */
function makeAreaTool() {
  const what = "Drag to select an area (or hold Shift)";
  const press = () => {
    surface.selecting = !surface.selecting;
    made.setAttribute("aria-pressed", String(surface.selecting));
  };
  const made = button("Area", press, { title: what, "aria-label": what, "aria-pressed": "false" });
  return made;
}

function listenToAll() {
  listenToPointer();
  listenToOverview();
  listenToKeys();
  listenToLook();
  onChange((what) => {
    if (what === "selected") tellSelected();
    if (what === "query") applyQuery();
    if (what === "arranged") followArranged();
    if (what === "area") return followArea();
    if (what === "view") {
      showViewSoon();
      hoverAgain();
    }
    requestDraw();
  });
  addEventListener("hashchange", () => {
    readFragment();
    scrollToSelected();
  });
}

/** The window's size, the theme and the printer. */
function listenToLook() {
  let waiting = 0;
  new ResizeObserver(() => {
    clearTimeout(waiting);
    waiting = setTimeout(fitIfWider, RESIZE_MS);
  }).observe(surface.lanesBox);
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(fitSurface, RESIZE_MS);
  });
  surface.lanesBox.addEventListener("scroll", () => {
    hoverAgain();
    requestDraw();
  });
  for (const name of ["focus", "blur"]) surface.canvas.addEventListener(name, requestDraw);
  const root = document.documentElement;
  new MutationObserver(readSurfaceTheme).observe(root, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readSurfaceTheme);
  listenToPrinter();
}

function fitIfWider() {
  if (surface.lanesBox.clientWidth !== surface.width) fitSurface();
}

/** Print on white: light colours while the page is printed. */
function listenToPrinter() {
  const root = document.documentElement;
  let before;
  const redraw = () => {
    readSurfaceTheme();
    paintTimeline();
  };
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => {
    if (before === undefined) delete root.dataset.theme;
    else root.dataset.theme = before;
    redraw();
  });
}

/** Show what is selected in the panel, and say it. */
function tellSelected() {
  showDetails();
  const { selected } = state;
  if (selected && reports[selected.report].tables[selected.table].end) say(selectedWords(selected));
}

/** The first picture: the time in the address, else typical steps. The mark is for benchmarks. */
function openTimeline() {
  if (!timeGiven) setView(...openingView());
  performance.mark("timeline-opened");
}

/** A table more is decoded. */
function tableArrived() {
  surface.progress.textContent = loading.text;
  surface.progress.hidden = !loading.text;
  surface.overviewPicture = null;
  fitLegend();
  if (state.query) applyQuery();
  showDetails();
  requestDraw();
  if (!loading.text && !surface.arrived) allArrived();
}

/** Everything is decoded: bring the selected slice of the address into sight. */
function allArrived() {
  surface.arrived = true;
  if (timeGiven) scrollToSelected();
  else if (state.selected) moveToRow(state.selected);
  document.documentElement.dataset.timeline = "ready";
}

startTimeline();
