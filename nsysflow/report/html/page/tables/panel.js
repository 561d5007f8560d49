// One table: its words, the filter, the choice of columns, the file, the rows.

const FEW_COLUMNS = 9;
const FILTER_MS = 120;

/** The panel of a table. */
function tablePanel(source) {
  let order = firstOrder(source);
  let columns = firstColumns(source);
  const every = Array.from({ length: source.count }, (_, row) => row);
  let rows = ordered(source, every, order);
  const status = make("p", { class: "count", role: "status" });
  const grid = makeGrid(source.name, (column) => {
    order = nextOrder(source, order, column);
    show();
  });
  const filter = make("input", {
    type: "search",
    class: "filter",
    "aria-label": `Filter ${source.name}`,
    placeholder: filterHint(source),
  });
  function show() {
    const wanted = rowFilter(source, filter.value);
    const wrong = typeof wanted === "string";
    filter.setAttribute("aria-invalid", String(wrong));
    rows = ordered(source, wrong ? every : every.filter(wanted), order);
    status.textContent = wrong ? wanted : countOf(rows.length, source);
    grid.show({ source, rows, columns, order });
  }
  let waiting = 0;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      show();
      grid.top();
    }, FILTER_MS);
  });
  const chooser = columnChooser(source, columns, (chosen) => {
    columns = chosen;
    show();
  });
  const save = button("Save as CSV", () => saveAs(`${source.name}.csv`, csvOf(source, rows)));
  return {
    element: make("div", { class: "panel" }, panelWords(source), make("div", { class: "controls" }, filter, chooser, save, status), grid.element),
    show,
    find(text) {
      filter.value = text;
      show();
    },
  };
}

function panelWords({ about, rows_are: rowsAre }) {
  return make("div", { class: "about" }, make("p", {}, `${about[0].toUpperCase()}${about.slice(1)}.`), make("details", {}, make("summary", {}, "What a row is"), make("p", {}, rowsAre)));
}

/** An example of a comparison with a column that the table has. */
function filterHint({ columns, columnAt, shown }) {
  const time = [...shown.map((name) => columns[columnAt[name]]), ...columns].find((column) => column?.unit === "duration");
  return time ? `words, or ${time.name}>1ms` : "words";
}

function countOf(shown, { count, total }) {
  const rows = `${grouped(String(count))} row${count === 1 ? "" : "s"}`;
  const here = shown === count ? rows : `${grouped(String(shown))} of ${rows}`;
  return total > count ? `${here}; ${grouped(String(total))} are in the file` : here;
}

/** The columns that people act on, as far as they say anything. */
function firstColumns(source) {
  const wanted = source.shown.map((name) => source.columnAt[name]).filter((column) => column !== undefined);
  const telling = (wanted.length ? wanted : source.columns.map((_, column) => column)).filter((column) => says(source, column));
  return telling.slice(0, FEW_COLUMNS);
}

/** Whether a column has a value anywhere, and not the same report or process in all rows. */
function says(source, column) {
  const { name } = source.columns[column];
  const values = new Set();
  for (let row = 0; row < source.count && values.size < 2; row += 1) {
    const value = source.value(row, column);
    if (value !== null && value !== "") values.add(value);
  }
  return ["report", "process", "device"].includes(name) ? values.size > 1 : values.size > 0;
}

/** Check boxes, one per column. */
function columnChooser(source, chosen, onchange) {
  const boxes = source.columns.map(({ name, meaning }, column) => {
    const box = make("input", { type: "checkbox", value: column, onchange: () => onchange(picked()) });
    box.checked = chosen.includes(column);
    return make("label", { "data-tip": meaning }, box, name);
  });
  const picked = () => {
    const now = boxes.map((label) => label.firstChild).filter((box) => box.checked).map((box) => Number(box.value));
    const before = chosen.filter((column) => now.includes(column));
    chosen = [...before, ...now.filter((column) => !before.includes(column))];
    return chosen;
  };
  return make("details", { class: "chooser" }, make("summary", {}, "Columns"), make("div", {}, boxes));
}
