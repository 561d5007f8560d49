// In which order do the rows stand?

/** The rows by a column; rows without a value come last. Equal rows keep the order that they have. */
function ordered(source, rows, { column, descending }) {
  if (column === null) return rows;
  const sign = descending ? -1 : 1;
  const values = new Map(rows.map((row) => [row, source.value(row, column)]));
  return rows.toSorted((one, other) => {
    const a = values.get(one);
    const b = values.get(other);
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

/** The order in which people read a table: as its file has it, or largest first. */
function firstOrder(source) {
  const column = source.columnAt[source.ranked_by];
  return { column: column ?? null, descending: true };
}

/** The order after a click on a column: numbers from the largest, words from A; then the reverse. */
function nextOrder(source, order, column) {
  const first = source.columns[column].number;
  return { column, descending: order.column === column ? !order.descending : first };
}
