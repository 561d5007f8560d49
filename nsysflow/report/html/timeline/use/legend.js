// Which colour is which? A press makes what has this colour stand out.

function makeLegend() {
  const { causes } = about.timeline;
  const legend = make("div", { id: "timeline-legend", role: "group", "aria-label": "Colours" });
  const part = (title, entries) => {
    legend.append(make("span", { class: "part" }, make("b", {}, title), ...entries));
  };
  const ofCause = ({ label, meaning }, kind) => legendButton("gaps", kind, label, meaning);
  part("Idle", causes.map(ofCause));
  part("GPU", GROUPS.map((name, kind) => legendButton("operations", kind, name, "")));
  legend.append(legendButton("stack_frames", SHADES, "your code", ""));
  return legend;
}

function legendButton(key, kind, label, meaning) {
  const made = button([hueOf(COLOURS[key][kind]), label], () => markKind(key, kind), {
    "aria-pressed": "false",
    "data-tip": meaning || null,
    hidden: true,
  });
  made.dataset.of = `${key} ${kind}`;
  return made;
}

/** Show the entries of the colours that are there. */
function fitLegend() {
  for (const { tables } of reports) {
    for (const key of ["gaps", "operations", "stack_frames"]) {
      if (tables[key].kinds) showEntries(key, tables[key]);
    }
  }
}

function showEntries(key, table) {
  if (table.legend) return;
  table.legend = new Uint8Array(256);
  for (let row = 0; row < table.n; row++) table.legend[table.kinds[row]] = 1;
  for (const cause of table.part_cause ?? []) table.legend[cause] = 1;
  table.legend.forEach((there, kind) => {
    const entry = there && surface.legend.querySelector(`[data-of="${key} ${kind}"]`);
    if (entry) entry.hidden = false;
  });
}

/** Make one colour stand out, or none if it does already. */
function markKind(key, kind) {
  const wanted = `${key} ${kind}`;
  const again = surface.kind === wanted;
  if (state.query) setQuery("");
  surface.kind = again ? null : wanted;
  const marks = key === "gaps" ? marksOfCause : (of) => marksOfKind(key, of);
  surface.marked = again ? null : marks(kind);
  searching.found.textContent = again ? "" : foundWords(surface.marked);
  surface.overviewPicture = null;
  pressLegend();
  requestDraw();
}

function pressLegend() {
  for (const entry of surface.legend.querySelectorAll("button")) {
    entry.setAttribute("aria-pressed", String(entry.dataset.of === surface.kind));
  }
}
