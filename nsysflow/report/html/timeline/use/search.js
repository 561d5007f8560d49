// Where is a kernel, a call or a phase of this name?

const TYPING_MS = 150;
const searching = { input: null, found: null, timer: 0 };

function makeSearch() {
  searching.input = make("input", {
    type: "search",
    id: "timeline-search",
    placeholder: "Search names ( / )",
    "aria-label": "Search kernels, calls and phases by name",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => {
      clearTimeout(searching.timer);
      searching.timer = setTimeout(() => setQuery(searching.input.value), TYPING_MS);
    },
    onkeydown: searchKey,
  });
  searching.found = make("output", { id: "timeline-found", for: "timeline-search" });
  return make("span", { class: "search" }, searching.input, searching.found);
}

function searchKey(event) {
  if (event.key === "Enter") {
    event.preventDefault();
    clearTimeout(searching.timer);
    setQuery(searching.input.value);
    moveToHit(event.shiftKey);
  } else if (event.key === "Escape") {
    searching.input.value = "";
    setQuery("");
    surface.canvas.focus();
  } else return;
  event.stopPropagation();
}

function moveToHit(backwards) {
  if (!surface.marked) return;
  const from = state.selected && placeOf(state.selected);
  const next = nextMarked(surface.marked, from ?? placeAtView(), backwards);
  if (next) moveTo(next);
}

/** Where a search begins when nothing is selected: at the left edge of the view. */
function placeAtView() {
  const [row] = shownRows(surface.layout);
  if (!row?.n) return null;
  return { row, slice: Math.min(firstFrom(row.start, state.view.start), row.n - 1) };
}

/** Mark what the query finds, and say how much that is. */
function applyQuery() {
  const { query } = state;
  if (searching.input.value !== query) searching.input.value = query;
  surface.kind = null;
  pressLegend();
  surface.marked = query ? marksOfSearch(query) : null;
  searching.found.textContent = query ? foundWords(surface.marked) : "";
  surface.overviewPicture = null;
  requestDraw();
}

function foundWords({ count, ns }) {
  if (count) return `${shownAs("count", count)} found, ${shownAs("duration", ns)} in all`;
  return loading.text ? "none found yet" : "none found";
}
