// On paper all tables are there, up to a number of rows that someone may read.

const PRINTED_ROWS = 100;

/** Put the tables in full behind the page while it is printed. */
function printTables(sources) {
  const paper = make("section", { class: "on-paper", "aria-hidden": "true" });
  addEventListener("beforeprint", () => {
    paper.replaceChildren(...sources.flatMap(paperTable));
    document.querySelector("main").append(paper);
  });
  addEventListener("afterprint", () => paper.remove());
}

function paperTable(source) {
  const columns = firstColumns(source);
  const every = Array.from({ length: source.count }, (_, row) => row);
  const rows = ordered(source, every, firstOrder(source)).slice(0, PRINTED_ROWS);
  const left = source.count - rows.length;
  const cells = (row) => columns.map((column) => make("td", { class: source.columns[column].number ? "right" : null }, named(cellText(source, row, column), 60)));
  return [
    make("h3", {}, source.name.replaceAll("_", " ")),
    make("p", {}, source.about),
    make(
      "table",
      { class: "plain" },
      make("thead", {}, make("tr", {}, columns.map((column) => make("th", {}, source.columns[column].head)))),
      make("tbody", {}, rows.map((row) => make("tr", {}, cells(row)))),
    ),
    left > 0 && make("p", { class: "rest" }, `${grouped(String(left))} more rows are in the file`),
  ].filter(Boolean);
}
