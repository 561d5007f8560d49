// What do the tables of an area say, and how do two areas differ?

const FIRST_ROWS = 6; // of a table with more than two rows beyond these
const listedInFull = new Set(); // titles of tables that show all their rows

/** What the tables of an area are called, the head of their names, what they take from its contents, and
 * how a name is set. */
const AREA_TABLES = [
  { title: "Idle by cause", head: "cause", key: "idle", nameOf: causeName },
  { title: "GPU work", head: "kernel or copy", key: "work", nameOf: (name) => named(name, 44) },
  { title: "Python", head: "innermost line", key: "stacks", nameOf: (name) => named(name, 44) },
];

function causeName(cause) {
  const { name, label } = about.timeline.causes[cause];
  return make("span", {}, hueOf(`--cause-${name}`), label);
}

/** The area, or the kept one and the area beside each other. */
function areaDetails() {
  const { area, kept } = state;
  const both = kept && area && area !== kept;
  const parts = both ? comparedAreas(kept, area) : oneArea(area ?? kept);
  return make("div", { class: kept ? "areas wide" : "areas" }, parts);
}

function oneArea(area) {
  const found = contentsOf(area);
  const keep = button(state.kept ? "Kept as A" : "Keep as A", keepHere, {
    "aria-pressed": String(Boolean(state.kept)),
    "data-tip": "Keep this area, then select another one to compare the two",
  });
  return [
    make("p", { class: "sort" }, "selected area"),
    make("h3", {}, durationOf(area.end - area.start)),
    factList([["from", pageTime(area.start)], ["to", pageTime(area.end)], ["lanes", lanesWords(area)]]),
    make("p", { class: "moves" }, button("Zoom to it", zoomToSelected), keep, button("End", endAreas)),
    ...AREA_TABLES.map((table) => areaTable(table, found)),
    make("p", { class: "hint" }, "What an edge of the area cuts counts with its part inside."),
  ];
}

function pageTime(time) {
  return exactTime(time - about.timeline.start_ns);
}

function lanesWords({ lanes: ids }) {
  return ids ? String(ids.length) : "all that are shown";
}

function areaTable({ title, head, key, nameOf }, found) {
  const idle = key === "idle";
  const rows = [...found[key]].sort(([, one], [, other]) => other.ns - one.ns);
  const total = sumOf(found[key]);
  const figures = ({ count, ns }) =>
    idle
      ? [nsCell(ns), make("td", {}, shareOf(ns, found.gpuNs))]
      : [make("td", { "data-count": count }, shownAs("count", count)), nsCell(ns)];
  const heads = idle ? [head, "time", "share"] : [head, key === "work" ? "count" : "samples", "time"];
  return listed(title, heads, rows, total, nameOf, figures);
}

/** A table with its total and its first rows, or all of them. */
function listed(title, heads, rows, total, nameOf, figures) {
  if (!rows.length) return null;
  const all = listedInFull.has(title) || rows.length <= FIRST_ROWS + 2;
  const shown = all ? rows : rows.slice(0, FIRST_ROWS);
  const line = (name, sums, kind) =>
    make("tr", { class: kind }, make("th", { scope: "row" }, name), figures(sums));
  const more = () => {
    listedInFull.add(title);
    showDetails();
  };
  return make(
    "div",
    {},
    make(
      "table",
      { class: "causes", "data-area": title },
      make("caption", {}, title),
      make("thead", {}, make("tr", {}, heads.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, shown.map(([name, sums]) => line(nameOf(name), sums, null))),
      make("tfoot", {}, line("total", total, "total"))
    ),
    shown.length < rows.length && make("p", { class: "moves" }, button(`All ${rows.length}`, more))
  );
}

function sumOf(sums) {
  const total = { count: 0, ns: 0 };
  for (const { count, ns } of sums.values()) {
    total.count += count;
    total.ns += ns;
  }
  return total;
}

function nsCell(ns, unit = "duration") {
  const title = `${shownAs("count", ns)} ns`;
  return make("td", { "data-ns": ns, title }, shownAs(unit, ns));
}

/** Two areas: each table with both, and by how much B is longer; the largest change first. */
function comparedAreas(a, b) {
  const [one, other] = [contentsOf(a), contentsOf(b)];
  const buttons = [
    button("Swap A and B", () => {
      setArea(a);
      keepArea(b);
    }),
    button("Zoom to B", zoomToSelected),
    button("End", endAreas),
  ];
  const lengths = [a, b].map(({ start, end }) => ({ count: 1, ns: end - start }));
  return [
    make("p", { class: "sort" }, "two areas"),
    make("h3", {}, `A ${shownAs("duration", lengths[0].ns)}, B ${shownAs("duration", lengths[1].ns)}`),
    factList([["A from", pageTime(a.start)], ["B from", pageTime(b.start)], ["B − A", changeWords(lengths)]]),
    make("p", { class: "moves" }, buttons),
    ...AREA_TABLES.map((table) => comparedTable(table, one, other)),
  ];
}

function changeWords([one, other]) {
  return shownAs("signed", other.ns - one.ns);
}

function comparedTable({ title, head, key, nameOf }, one, other) {
  const none = { count: 0, ns: 0 };
  const names = new Set([...one[key].keys(), ...other[key].keys()]);
  const rows = [...names].map((name) => [name, [one[key].get(name) ?? none, other[key].get(name) ?? none]]);
  const change = ([, [a, b]]) => Math.abs(b.ns - a.ns);
  rows.sort((first, second) => change(second) - change(first));
  const figures = ([a, b]) => [countedCell(key, a), countedCell(key, b), nsCell(b.ns - a.ns, "signed")];
  const total = [sumOf(one[key]), sumOf(other[key])];
  return listed(title, [head, "A", "B", "B − A"], rows, total, nameOf, figures);
}

/** A time, and below it how often it was. */
function countedCell(key, { count, ns }) {
  const cell = nsCell(ns);
  if (key === "work") cell.append(make("small", { "data-count": count }, `${shownAs("count", count)} ×`));
  return cell;
}
