// On paper all tables are there, up to a number of rows that someone may read.

const PRINTED_ROWS = 100;

/** Put the tables in full behind the page while it is printed, and unfold findings and remarks. */
function printTables(sources) {
  const paper = make("section", { class: "on-paper", "aria-hidden": "true" });
  let folded = [];
  addEventListener("beforeprint", () => {
    paper.replaceChildren(...sources.flatMap(paperTable));
    document.querySelector("main").append(paper);
    folded = [...document.querySelectorAll("details.more:not([open])")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    paper.remove();
    for (const each of folded) each.open = false;
  });
}

function paperTable(source) {
  const columns = firstColumns(source);
  const every = Array.from({ length: source.count }, (_, row) => row);
  const rows = ordered(source, every, firstOrder(source)).slice(0, PRINTED_ROWS);
  const left = source.count - rows.length;
  const figures = (column) => source.columns[column].number;
  const heads = columns.map((column) => {
    const { head } = source.columns[column];
    return figures(column) ? figureHead(head) : head;
  });
  const cell = (row, column) =>
    make("td", { class: figures(column) ? "right" : null }, named(cellText(source, row, column), 60));
  return [
    make("h3", {}, source.name.replaceAll("_", " ")),
    make("p", {}, source.about),
    plainTable(
      source.name,
      heads,
      rows.map((row) => plainRow(columns.map((column) => cell(row, column)))),
    ),
    left > 0 && make("p", { class: "rest" }, `${grouped(String(left))} more rows are in the file`),
  ].filter(Boolean);
}
