// Everything that changed, as tables.

/** The rows of several parts under one heading, with their places in the document. */
function diffRows(diff, { rows_of: wanted }) {
  const { parts } = diff.bridge;
  if (wanted === "ranks") return diff.ranks.map((row, at) => ({ row, pointer: `/ranks/${at}` }));
  return parts.flatMap((part, at) => {
    if ((part.part === "idle") !== (wanted === "waits")) return [];
    const label = diff.labels[`${part.part}/${part.kind ?? ""}`];
    return part.rows.map((row, index) => ({
      row: { ...row, kind: label, short_name: diff.short_names[row.name] },
      pointer: `/bridge/parts/${at}/rows/${index}`,
    }));
  });
}

/** The tables of a comparison that have rows. */
function diffTables(diff) {
  return diff.tables.flatMap((table) => {
    const held = diffRows(diff, table).filter(({ row }) => row.change_ns !== 0);
    if (!held.length) return [];
    const columnAt = Object.fromEntries(table.columns.map(({ name }, at) => [name, at]));
    const sorted = held.toSorted(
      (one, other) => Math.abs(other.row.change_ns ?? 0) - Math.abs(one.row.change_ns ?? 0),
    );
    return [
      {
        ...table,
        columns: table.columns.map((column) => ({ ...column, number: column.kind === "number" })),
        count: sorted.length,
        total: sorted.length,
        columnAt,
        placed: false,
        value: (row, column) => sorted[row].row[table.columns[column].name] ?? null,
        pointer: (row, column) => `${sorted[row].pointer}/${table.columns[column].name}`,
      },
    ];
  });
}
