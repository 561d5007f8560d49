// What does the page show now? The visible time, the selected row, the search, the open table.
// All of it is also in the address after `#`, so that a place can be sent to a colleague.

const about = JSON.parse(document.getElementById("about").textContent);
const NARROWEST_NS = 20;
const QUIET_MS = 250; // browsers allow about 100 changes of the address in 30 s

/** `selected` is null or {report, table, row}: two numbers with the table's name between them. */
const state = {
  about,
  view: { start: about.timeline.start_ns, end: about.timeline.end_ns },
  selected: null,
  query: "",
  tab: "",
  listeners: [],
};

/** Call `listener(what)` after each change: "view", "selected", "query" or "tab". */
function onChange(listener) {
  state.listeners.push(listener);
}

function changed(what) {
  for (const listener of state.listeners) listener(what);
  writeFragmentSoon();
}

/** Show [start, end) ns of the page's axis; kept within the trace. */
function setView(start, end) {
  const { start_ns: first, end_ns: last } = state.about.timeline;
  const whole = Math.max(last - first, NARROWEST_NS);
  const length = Math.min(Math.max(end - start, NARROWEST_NS), whole);
  const middle = (start + end) / 2;
  const from = Math.min(Math.max(middle - length / 2, first), first + whole - length);
  if (from === state.view.start && from + length === state.view.end) return;
  state.view = { start: from, end: from + length };
  changed("view");
}

/** Select a row of a report's table, or nothing. */
function select(report, table, row) {
  state.selected = table === undefined ? null : { report, table, row };
  changed("selected");
}

function setQuery(text) {
  if (text === state.query) return;
  state.query = text;
  changed("query");
}

function setTab(name) {
  if (name === state.tab) return;
  state.tab = name;
  changed("tab");
}

function fragment() {
  const { view, selected, query, tab } = state;
  const parts = [`t=${Math.round(view.start)},${Math.round(view.end)}`];
  if (selected) parts.push(`at=${selected.report}.${selected.table}.${selected.row}`);
  if (query) parts.push(`q=${encodeURIComponent(query)}`);
  if (tab) parts.push(`tab=${encodeURIComponent(tab)}`);
  return `#${parts.join("&")}`;
}

/** Take over what the address says; what it says wrongly or not at all stays as it is. Says whether
 * it named a time. */
function readFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  const [start, end] = (said.get("t") ?? "").split(",").map(Number);
  if (start < end) setView(start, end);
  const at = /^(\d+)\.(\w+)\.(\d+)$/.exec(said.get("at") ?? "");
  const table = at && state.about.timeline.reports[at[1]]?.tables[at[2]];
  if (table && Number(at[3]) < table.n) select(Number(at[1]), at[2], Number(at[3]));
  if (said.has("q")) setQuery(said.get("q"));
  if (said.has("tab")) setTab(said.get("tab"));
  return start < end;
}

let writing = 0;

function writeFragmentSoon() {
  clearTimeout(writing);
  writing = setTimeout(writeFragment, QUIET_MS);
}

function writeFragment() {
  clearTimeout(writing);
  if (fragment() !== location.hash) history.replaceState(null, "", fragment());
}

const timeGiven = readFragment(); // at once: later the address is written, not read
