// The rows as a CSV file, as nsysflow writes it: raw values, all columns.

/** The text of the file. */
function csvOf(source, rows) {
  const lines = rows.map((row) =>
    source.columns.map((_, column) => csvCell(source.value(row, column))).join(","),
  );
  return [source.columns.map(({ name }) => name).join(","), ...lines, ""].join("\n");
}

function csvCell(value) {
  if (value === null) return "";
  const text = Array.isArray(value) ? value.join("; ") : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const KEPT_MS = 60_000; // until the browser has read it

/** Give the reader a file. */
function saveAs(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { download: name, href: url }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}
