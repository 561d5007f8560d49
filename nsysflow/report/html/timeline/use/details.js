// What does the panel beside the lanes say of the selected slice, or of an area?

const VIEW_MS = 120; // so long the view must rest before the panel describes it

function showDetails() {
  const panel = surface.details;
  const { selected } = state;
  const areas = state.area || state.kept;
  const parts = areas && reports.every(({ texts }) => texts) ? [areaDetails()] : [];
  if (selected && reports[selected.report].tables[selected.table].end) {
    parts.push(...selectedDetails(selected));
  }
  const focused = panel.contains(document.activeElement);
  panel.replaceChildren(...(parts.length ? parts : viewDetails()));
  if (focused) panel.focus({ preventScroll: true }); // a button that was pressed is gone
}

let viewTimer = 0;

/** Describe the view once it rests, if nothing else is described. */
function showViewSoon() {
  if (state.selected || state.area || state.kept) return;
  clearTimeout(viewTimer);
  viewTimer = setTimeout(showDetails, VIEW_MS);
}

/** With nothing selected: why the GPUs idle in what is in view. */
function viewDetails() {
  const { start, end } = state.view;
  return [
    make("p", { class: "sort" }, "in view"),
    make("h3", {}, shownAs("duration", Math.round(end - start))),
    ...idleDetails({ start, end }),
    make("p", { class: "hint" }, "Click a bar to see what it is. Press ? for the keys."),
  ];
}

function selectedDetails(at) {
  const gap = at.table === "gaps";
  const full = fullNameOf(at);
  return [
    make("p", { class: "sort" }, sortOf(at)),
    make("h3", {}, named(nameOfSlice(at.report, at.table, at.row) || "…")),
    gap ? causeTable(causesOf(at), reports[at.report].tables.gaps.duration[at.row]) : null,
    ...linkDetails(at),
    factList(factsOf(at)),
    moveButtons(at),
    gap ? causeWords(causesOf(at)[0][0]) : null,
    full ? make("details", {}, make("summary", {}, "Full name"), make("code", {}, full)) : null,
  ].filter(Boolean);
}

function factList(facts) {
  const rows = facts.map(([term, text]) => [make("dt", {}, term), make("dd", {}, named(text))]);
  return make("dl", {}, ...rows.flat());
}

/** What a cause means, where it usually comes from, and what to try. */
function causeWords(cause) {
  const { meaning, usual, remedies } = about.timeline.causes[cause];
  return make(
    "div",
    {},
    make("p", {}, `${capitalised(meaning)}.`),
    wordList("It usually comes from", usual),
    wordList("What helps", remedies),
  );
}

function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function wordList(title, lines) {
  if (!lines?.length) return null;
  const items = lines.map((line) => make("li", {}, line));
  return make("div", {}, make("h4", {}, title), make("ul", {}, items));
}

function causeTable(causes, whole) {
  const rows = causes.map(([cause, ns]) => {
    const { name, label } = about.timeline.causes[cause];
    const head = make("th", { scope: "row" }, hueOf(`--cause-${name}`), label);
    const cells = [shownAs("duration", ns), shareOf(ns, whole)].map((text) => make("td", {}, text));
    return make("tr", {}, head, cells);
  });
  return make("table", { class: "causes" }, make("tbody", {}, rows));
}

/** A small square in the colour of a CSS variable. */
function hueOf(variable) {
  const square = make("i", { class: "hue", "aria-hidden": "true" });
  square.style.background = `var(${variable})`;
  return square;
}

const LINK_WORDS = { launch: "Launched by", work: "Launches", culprit: "To blame", end: "Ended by" };
const MOST_LINKS = 5;

/** What the slice belongs to, each with a button that goes there. */
function linkDetails(at) {
  const links = selectedLinks();
  const shown = links.slice(0, MOST_LINKS).map((link) => linkLine(at, link));
  if (links.length > MOST_LINKS) {
    const more = links.length === MOST_WORK ? `${MOST_WORK} or more` : String(links.length);
    shown.push(make("p", { class: "hint" }, `${more} operations in all; arrows show where they are.`));
  }
  if (at.table === "gaps") shown.push(...gapNeighbours(at));
  return shown;
}

function linkLine(at, link) {
  const words = [`${LINK_WORDS[link.role]} `, goButton(link), ` ${delayWords(at, link)}`];
  return make("p", { class: "link" }, words);
}

function goButton(link) {
  const name = nameOfSlice(link.report, link.table, link.row) || "…";
  const attributes = { class: "go", "data-role": link.role ?? "operation" };
  return button(named(name, 60), () => moveToRow(link), attributes);
}

/** How long after the end of its launch an operation starts; with the call's source line. */
function delayWords(at, link) {
  const { operations, calls } = reports[at.report].tables;
  const source = link.table === "calls" && at.table === "gaps" ? sourceOf(link) : "";
  if (at.table === "gaps") return source ? `at ${source}` : "";
  const [call, operation] = link.role === "launch" ? [link.row, at.row] : [at.row, link.row];
  if (!calls.end) return "";
  const delay = operations.start[operation] - calls.end[call];
  return delay < 0
    ? "; it starts while the call still runs"
    : `; it starts ${shownAs("duration", delay)} after the call`;
}

/** The operations around a gap. */
function gapNeighbours({ report, row }) {
  const { gaps } = reports[report].tables;
  const line = (words, at) =>
    make("p", { class: "link" }, `${words} `, goButton({ report, table: "operations", row: at }));
  return [line("After", gaps.prev_op[row]), line("Before", gaps.next_op[row])];
}

function moveButtons({ table }) {
  const [before, after] =
    table === "gaps"
      ? [button("Longer gap", () => moveToGap(true)), button("Next longest gap", () => moveToGap(false))]
      : [
          button("Previous of this name", () => moveToSame(-1)),
          button("Next of this name", () => moveToSame(1)),
        ];
  return make("p", { class: "moves" }, button("Zoom to it", zoomToSelected), before, after);
}

/** How much of a stretch each GPU idles, and why. */
function idleDetails({ start, end }) {
  const whole = end - start;
  return idleOfGpus({ start, end }).map(({ title, idle, causes }) => {
    const words = ` idles ${shownAs("duration", idle)}, ${shareOf(idle, whole)} of it`;
    return make("div", {}, make("p", {}, named(title), words), causeTable(causes, whole));
  });
}

/** One sentence on what is selected, for screen readers. */
function selectedWords(at) {
  const name = nameOfSlice(at.report, at.table, at.row);
  const { start, duration } = reports[at.report].tables[at.table];
  const place = placeOf(at);
  const when = exactTime(start[at.row] - about.timeline.start_ns);
  const where = place ? `, ${place.row.lane.title}` : "";
  return `${sortOf(at)}: ${name}, ${shownAs("duration", duration[at.row])}, at ${when}${where}`;
}

/** Tell a screen reader. */
function say(text) {
  surface.spoken.textContent = text;
}
