// What does the page show now? The visible time, the selected row, the search, the open table, how the
// lanes are arranged, and which areas are selected.
// All of it is also in the address after `#`, so that a place can be sent to a colleague.

const about = JSON.parse(document.getElementById("about").textContent);
const NARROWEST_NS = 20;
const QUIET_MS = 250; // browsers allow about 100 changes of the address in 30 s

/** `selected` is null or {report, table, row}: two numbers with the table's name between them.
 * `arranged` has the ids of lanes; its `order` those of groups, too.
 * `area` and the one that is `kept` are null or {start, end, lanes}: ids, or null for all that are shown. */
const state = {
  about,
  view: { start: about.timeline.start_ns, end: about.timeline.end_ns },
  selected: null,
  query: "",
  tab: "",
  arranged: { pinned: [], hidden: [], order: [] },
  area: null,
  kept: null,
  listeners: [],
};

/** Call `listener(what)` after each change: "view", "selected", "query", "tab",
 * "arranged" or "area". */
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

/** Pin, hide or order lanes otherwise: what is named of `state.arranged`. */
function arrange(lists) {
  state.arranged = { ...state.arranged, ...lists };
  changed("arranged");
}

/** Select an area, or none. */
function setArea(area) {
  state.area = area;
  changed("area");
}

/** Keep an area to compare with, or none. */
function keepArea(area) {
  state.kept = area;
  changed("area");
}

function fragment() {
  const { view, selected, query, tab, arranged } = state;
  const parts = [`t=${Math.round(view.start)},${Math.round(view.end)}`];
  if (selected) parts.push(`at=${selected.report}.${selected.table}.${selected.row}`);
  if (query) parts.push(`q=${encodeURIComponent(query)}`);
  if (tab) parts.push(`tab=${encodeURIComponent(tab)}`);
  for (const [name, ids] of Object.entries(arranged)) if (ids.length) parts.push(`${name}=${ids}`);
  for (const name of ["area", "kept"]) if (state[name]) parts.push(`${name}=${writtenArea(state[name])}`);
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
  readArranged(said);
  const areas = ["area", "kept"].map((name) => areaIn(said.get(name) ?? ""));
  if (areas[0]) setArea(areas[0]);
  if (areas[1]) keepArea(areas[1]);
  return start < end;
}

function writtenArea({ start, end, lanes }) {
  return [start, end, ...(lanes ?? [])].join(",");
}

/** An area as it is written; null where that is none. */
function areaIn(text) {
  if (!/^\d+(,\d+)+$/.test(text)) return null;
  const [start, end, ...ids] = text.split(",");
  if (Number(start) > Number(end) || ids.some((id) => Number(id) >= laneCount())) return null;
  return { start: Number(start), end: Number(end), lanes: ids.length ? ids : null };
}

function laneCount() {
  return state.about.timeline.reports.reduce((sum, { lanes }) => sum + lanes.length, 0);
}

/** Lists of the ids of lanes, and in `order` of groups. */
function readArranged(said) {
  const isLane = (id) => /^\d+$/.test(id) && Number(id) < laneCount();
  const wanted = { pinned: isLane, hidden: isLane, order: (id) => isLane(id) || /^g\d+$/.test(id) };
  const lists = Object.entries(wanted).filter(([name]) => said.has(name));
  if (!lists.length) return;
  const idsOf = ([name, isId]) => [name, [...new Set(said.get(name).split(",").filter(isId))]];
  arrange(Object.fromEntries(lists.map(idsOf)));
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
