// The rows on screen. Only those in sight are in the page, so that any number of them scrolls.

const ROW_PX = 28; // as .grid td in grid.css
const MORE_ROWS = 20; // above and below what is in sight
const MEASURED = 300; // rows that say how wide a column is
const WIDEST = 46; // letters
const NARROWEST = 7;
const READABLE = 18; // a name is still recognised when it is cut to this width
const PADDING_PX = 18; // as .grid td in grid.css, with a little room

/** A table of the rows in `view`: {source, rows, columns, order}. `onsort(column)` after a click. */
function makeGrid(label, onsort) {
  const columns = make("colgroup");
  const head = make("thead");
  const body = make("tbody");
  const table = make("table", { class: "grid", "aria-label": label }, columns, head, body);
  const scroller = make(
    "div",
    { class: "grid-scroll", tabindex: 0, role: "region", "aria-label": `${label}: rows` },
    table,
  );
  let view = null;
  const draw = () => view && drawRows(scroller, body, view);
  const fit = () => view && setWidths(columns, scroller, view);
  new ResizeObserver(fit).observe(scroller);
  scroller.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  return {
    element: scroller,
    show(next) {
      const focused = head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
      view = next;
      table.setAttribute("aria-rowcount", view.rows.length + 1);
      scroller.style.setProperty("--rows", view.rows.length);
      drawHead(head, view, onsort);
      fit();
      if (focused !== null) head.querySelector(`[data-column="${focused}"]`)?.focus();
      draw();
    },
    top: () => scroller.scrollTo({ top: 0 }),
  };
}

/** Give each column its width; names give way where there is no room for all. */
function setWidths(columns, scroller, { source, rows, columns: shown }) {
  const letterPx = letterWidth(scroller);
  const width = (letters) => letters * letterPx + PADDING_PX;
  const wanted = shown.map((column) => columnWidth(source, rows, column));
  const least = shown.map((column, at) =>
    source.columns[column].number ? wanted[at] : Math.min(wanted[at], READABLE),
  );
  const go = source.placed ? [width(3)] : [];
  const fitted = [
    ...go,
    ...fittedWidths(wanted.map(width), least.map(width), scroller.clientWidth - (go[0] ?? 0)),
  ];
  const cols = fitted.map((px) => {
    const col = make("col");
    col.style.width = `${px}px`;
    return col;
  });
  columns.replaceChildren(...cols);
  columns.parentElement.style.minWidth = `${fitted.reduce((sum, px) => sum + px, 0)}px`;
}

/** What is too much is taken from what each column can give. */
function fittedWidths(wanted, least, room) {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const spare = sum(wanted) - sum(least);
  const missing = sum(wanted) - room;
  const part = missing > 0 && spare > 0 ? Math.min(1, missing / spare) : 0;
  return wanted.map((width, at) => width - part * (width - least[at]));
}

/** The width of a figure in an element's font. */
function letterWidth(element) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = getComputedStyle(element).font;
  return context.measureText("0").width;
}

function drawHead(head, { source, columns: shown, order }, onsort) {
  const cells = shown.map((column) => headCell(source.columns[column], column, order, onsort));
  const go =
    source.placed &&
    make("th", { scope: "col", class: "go" }, make("span", { class: "unseen" }, "in the timeline"));
  head.replaceChildren(make("tr", { "aria-rowindex": 1 }, go, cells));
}

function headCell({ name, head, meaning, number }, column, order, onsort) {
  const sorted = order.column === column;
  const direction = order.descending ? "descending" : "ascending";
  const mark = sorted
    ? make("span", { class: "mark", "aria-hidden": "true" }, order.descending ? "▼" : "▲")
    : null;
  return make(
    "th",
    { scope: "col", class: number ? "right" : null, "aria-sort": sorted ? direction : "none" },
    button([head, mark].filter(Boolean), () => onsort(column), {
      "data-tip": `${name}: ${meaning}`,
      "data-column": column,
    }),
  );
}

/** How many letters a column needs, as its first rows tell. */
function columnWidth(source, rows, column) {
  const longest = rows
    .slice(0, MEASURED)
    .reduce((most, row) => Math.max(most, cellText(source, row, column).length), 0);
  return Math.min(WIDEST, Math.max(NARROWEST, source.columns[column].head.length + 2, longest));
}

function drawRows(scroller, body, { source, rows, columns }) {
  const from = Math.max(0, Math.floor(scroller.scrollTop / ROW_PX) - MORE_ROWS);
  const to = Math.min(rows.length, from + Math.ceil(scroller.clientHeight / ROW_PX) + 2 * MORE_ROWS);
  const drawn = rows.slice(from, to).map((row, at) => bodyRow(source, row, columns, from + at));
  body.replaceChildren(spaceRow(from, columns.length), ...drawn, spaceRow(rows.length - to, columns.length));
}

/** The height of the rows that are out of sight. */
function spaceRow(count, columns) {
  const space = make("td", { colspan: columns + 1 });
  space.style.height = `${count * ROW_PX}px`;
  const row = make("tr", { class: "space", "aria-hidden": "true" }, space);
  row.hidden = count === 0;
  return row;
}

function bodyRow(source, row, columns, at) {
  const cells = columns.map((column) => bodyCell(source, row, column));
  return make("tr", { "aria-rowindex": at + 2 }, source.placed && goCell(source, row, at), cells);
}

/** The way to the timeline. */
function goCell(source, row, at) {
  const place = source.place(row);
  const name = source.searched(row);
  const attributes = { class: "go", "aria-label": `Show row ${at + 1} in the timeline` };
  const show = place ? () => goToPlace(place) : name && (() => searchTimeline(name));
  return make("td", { class: "go" }, show && button("↗", show, attributes));
}

function bodyCell(source, row, column) {
  const { number, unit } = source.columns[column];
  const value = source.value(row, column);
  const text = cellText(source, row, column);
  const attributes = {
    class: number ? "right" : null,
    "data-key": source.pointer(row, column),
    "data-value": value ?? "",
    "data-unit": unit,
  };
  if (unit === "duration" && value) attributes.title = `${grouped(String(value))} ns`;
  else if (text.length > WIDEST - 2) attributes.title = text;
  return make(
    "td",
    attributes,
    number ? text : make("bdi", {}, text.length > 500 ? `${text.slice(0, 500)}…` : text),
  );
}
