// What does each key do? The list is also the help.

const KEYS = [
  [["ArrowLeft", "a"], "earlier", () => panBy(-PAN_SHARE)],
  [["ArrowRight", "d"], "later", () => panBy(PAN_SHARE)],
  [["+", "=", "w"], "zoom in", () => zoomBy(ZOOM_STEP)],
  [["-", "s"], "zoom out", () => zoomBy(1 / ZOOM_STEP)],
  [["ArrowUp"], "the lane above", () => moveAcross(-1)],
  [["ArrowDown"], "the lane below", () => moveAcross(1)],
  [["["], "previous in this lane", () => moveAlong(-1)],
  [["]"], "next in this lane", () => moveAlong(1)],
  [["p"], "previous of the same name", () => moveToSame(-1)],
  [["n"], "next of the same name", () => moveToSame(1)],
  [["g"], "longest judged gap, then the next longest", () => moveToGap(false)],
  [["G"], "back to the longer gap", () => moveToGap(true)],
  [["b"], "to the launch, or to what is to blame", () => followLink()],
  [["z"], "zoom to the area or to what is selected", zoomToSelected],
  [["m"], "make an area of what is selected, or of what is in view", () => selectAreaHere()],
  [["Shift+ArrowLeft"], "the area's end earlier", () => widenArea(-1)],
  [["Shift+ArrowRight"], "the area's end later", () => widenArea(1)],
  [["A"], "keep the area as A; the next one is compared with it", () => keepHere()],
  [["t"], "typical steps", showTypicalSteps],
  [["0", "f"], "the whole trace", showWholeTrace],
  [["Home"], "start of the trace", () => panBy(-Infinity)],
  [["End"], "end of the trace", () => panBy(Infinity)],
  [[" "], "close or open the group", () => toggleGroupHere()],
  [["o"], "open all groups", () => openAllGroups()],
  [["P"], "pin the lane to the top, or let it go", () => pinHere()],
  [["h"], "hide the lane", () => hideHere()],
  [["H"], "show all lanes again", () => showAllLanes()],
  [["Shift+ArrowUp"], "move the lane up", () => moveHere(-1)],
  [["Shift+ArrowDown"], "move the lane down", () => moveHere(1)],
  [["l"], "list of all lanes", () => openLaneList(laneHere())],
  [["Enter"], "to the details", () => focusDetails()],
  [["Escape"], "end: help, area, search, selection", () => endSomething()],
  [["/"], "search", () => searching.input.focus()],
  [["?"], "these keys", () => surface.help.showModal()],
];

const KEY_NAMES = {
  "Shift+ArrowLeft": "Shift ←", "Shift+ArrowRight": "Shift →",
  "Shift+ArrowUp": "Shift ↑", "Shift+ArrowDown": "Shift ↓",
  ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "Space", Escape: "Esc",
};

/** Keys of the lanes; `/` and `?` work wherever no text is being typed. */
function listenToKeys() {
  surface.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const named = (name) => KEYS.find(([keys]) => keys.includes(name));
    const found = (event.shiftKey && named(`Shift+${event.key}`)) || named(event.key);
    if (!found) return;
    event.preventDefault();
    event.stopPropagation();
    found[2]();
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key !== "/" && event.key !== "?") return;
    event.preventDefault();
    KEYS.find(([keys]) => keys.includes(event.key))[2]();
  });
  surface.details.addEventListener("keydown", (event) => {
    if (event.key === "Escape") surface.canvas.focus();
  });
}

function followLink() {
  const [link] = selectedLinks();
  if (link) moveToRow(link);
}

function toggleGroupHere() {
  const { lane } = currentPlace()?.row ?? {};
  if (lane) toggleGroup(groupOfLane(lane));
}

function openAllGroups() {
  for (const group of groups) group.open = true;
  fitSurface();
  say("All groups are open");
}

function focusDetails() {
  showDetails();
  surface.details.focus();
}

function endSomething() {
  if (state.area || state.kept) endAreas();
  else if (surface.marked) {
    if (state.query) setQuery("");
    else applyQuery();
  } else select();
}

function makeHelp() {
  const words = (keys) => keys.map((key) => make("kbd", {}, KEY_NAMES[key] ?? key));
  const line = (how, what) =>
    make("tr", {}, make("th", { scope: "row" }, how), make("td", {}, what));
  const rows = KEYS.map(([keys, what]) => line(words(keys), what));
  const mouse = [
    ["wheel, pinch", "zoom at the pointer"],
    ["drag, wheel sideways", "move"],
    ["Shift and drag", "select an area: time, or time and lanes; what is in it"],
    ["drag a title", "move the lane or the group"],
    ["click a title", "list of all lanes"],
    ["double click", "zoom to what is selected"],
  ].map(([how, what]) => line(how, what));
  const title = make("h2", { id: "timeline-help-title" }, "Keys of the timeline");
  const close = button("Close", () => surface.help.close(), { autofocus: true });
  const table = make("table", {}, make("tbody", {}, rows, mouse));
  const attributes = { id: "timeline-help", "aria-labelledby": "timeline-help-title" };
  return make("dialog", attributes, title, table, close);
}
