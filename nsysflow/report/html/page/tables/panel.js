// One table: its words, the filter, the choice of columns, the file, the rows.

const FEW_COLUMNS = 9;
const TYPING_PAUSE_MS = 120;

/** The panel of a table. */
function tablePanel(source) {
  const every = Array.from({ length: source.count }, (_, row) => row);
  const now = { order: firstOrder(source), columns: firstColumns(source), rows: every };
  const status = make("p", { class: "count", role: "status" });
  const filter = filterField(source, () => {
    show();
    grid.top();
  });
  const grid = makeGrid(source.name, (column) => show({ order: nextOrder(source, now.order, column) }));
  function show(changes = {}) {
    const wanted = rowFilter(source, filter.value);
    const wrong = typeof wanted === "string";
    Object.assign(now, changes);
    now.rows = ordered(source, wrong ? every : every.filter(wanted), now.order);
    filter.setAttribute("aria-invalid", String(wrong));
    status.textContent = wrong ? wanted : countOf(now.rows.length, source);
    grid.show({ source, ...now });
  }
  const chooser = columnChooser(source, now.columns, (columns) => show({ columns }));
  const save = button("Save as CSV", () => saveAs(`${source.name}.csv`, csvOf(source, now.rows)));
  const controls = make("div", { class: "controls" }, filter, chooser, save, status);
  const element = make("div", { class: "panel" }, panelWords(source), controls, grid.element);
  return { element, show: () => show() };
}

/** A field that filters a little after the last letter, and at once with Enter. */
function filterField(source, onfilter) {
  let waiting = 0;
  return make("input", {
    type: "search",
    class: "filter",
    "aria-label": `Filter ${source.name}`,
    placeholder: filterHint(source),
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(onfilter, TYPING_PAUSE_MS);
    },
    onchange: () => {
      clearTimeout(waiting);
      onfilter();
    },
  });
}

function panelWords({ about, rows_are: rowsAre }) {
  return make(
    "div",
    { class: "about" },
    make("p", {}, `${about[0].toUpperCase()}${about.slice(1)}.`),
    make("details", {}, make("summary", {}, "What a row is"), make("p", {}, rowsAre)),
  );
}

/** An example of a comparison with a column that the table has. */
function filterHint({ columns, columnAt, shown }) {
  const time = [...shown.map((name) => columns[columnAt[name]]), ...columns].find(
    (column) => column?.unit === "duration",
  );
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
  const telling = (wanted.length ? wanted : source.columns.map((_, column) => column)).filter((column) =>
    says(source, column),
  );
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
    const now = boxes
      .map((label) => label.firstChild)
      .filter((box) => box.checked)
      .map((box) => Number(box.value));
    const before = chosen.filter((column) => now.includes(column));
    chosen = [...before, ...now.filter((column) => !before.includes(column))];
    return chosen;
  };
  return make("details", { class: "chooser" }, make("summary", {}, "Columns"), make("div", {}, boxes));
}
