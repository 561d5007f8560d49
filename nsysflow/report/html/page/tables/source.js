// The rows of a table, wherever they come from: `columns`, how many, the value of a cell, and where
// in the timeline a row is.

/** A table whose rows are objects. */
function jsonTable(table, rows) {
  const paths = table.columns.map(({ key }) => key.split("/"));
  const columnAt = Object.fromEntries(table.columns.map(({ name }, at) => [name, at]));
  return {
    ...table,
    columns: table.columns.map((column) => ({ ...column, number: column.kind === "number" })),
    count: rows.length,
    columnAt,
    value: (row, column) => paths[column].reduce((value, key) => value?.[key], rows[row]) ?? null,
    pointer: (row, column) => (table.pointer ? [table.pointer, row, ...paths[column]].join("/") : null),
    placed: rows.some((row) => placeOfRow(row) ?? nameOfRow(row)),
    place: (row) => placeOfRow(rows[row]),
    searched: (row) => nameOfRow(rows[row]),
  };
}

/** The time that a row is about; null where it is a sum over many. */
function placeOfRow(row) {
  if (typeof row.start_ns !== "number") return null;
  const length =
    [row.duration_ns, row.blocked_ns, row.spread_ns, row.total_ns].find((ns) => typeof ns === "number") ?? 0;
  return {
    report: row.report ?? row.last_report,
    start_ns: row.start_ns,
    end_ns: row.end_ns ?? row.start_ns + length,
  };
}

/** The name by which the timeline finds what a row sums up; null where it has none. */
function nameOfRow(row) {
  return row.short_name ?? null;
}

/** All tables with rows, in their declared order. */
function tablesOf(data, report) {
  return data.tables.map((table) =>
    jsonTable(table, table.pointer ? valueAt(report, table.pointer) : table.rows),
  );
}
