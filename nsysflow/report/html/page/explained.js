// An explanation in full: its parts as nsysflow explain prints them.

const EXPLAINED_PARTS = {
  facts: ({ rows }) => explainedFacts(rows.filter(([, text]) => text)),
  prose: ({ title, text }) => [explainedTitle(title), make("p", {}, said(text))],
  points: ({ title, items, numbered }) =>
    items.length
      ? [
          explainedTitle(title),
          make(
            numbered ? "ol" : "ul",
            {},
            items.map((item) => make("li", {}, said(item))),
          ),
        ]
      : [],
  lines: ({ title, lines }) =>
    lines.length
      ? [
          explainedTitle(title),
          make("pre", { tabindex: 0, role: "region", "aria-label": title }, lines.join("\n")),
        ]
      : [],
  block: (block) => [
    explainedTitle(block.title),
    blockTable(block),
    block.rest && make("p", { class: "rest" }, block.rest),
  ],
};

/** All parts as elements. */
function explainedParts(parts) {
  return parts.flatMap((part) => EXPLAINED_PARTS[part.kind](part)).filter(Boolean);
}

function explainedTitle(title) {
  return title ? make("h4", {}, title) : null;
}

/** Sentences beside the name of what they say; each name once. */
function explainedFacts(rows) {
  const list = make("dl", {});
  let before = null;
  for (const [name, text] of rows) {
    if (name !== before) list.append(make("dt", {}, name));
    list.append(make("dd", {}, said(text)));
    before = name;
  }
  return rows.length ? [list] : [];
}

/** A table of cells that are ready. */
function blockTable({ title, columns, rows }) {
  const shown = columns.map((column, at) => ({ ...column, at })).filter((column) => !column.drawn);
  const heads = shown.map(({ head, right }) => (right ? figureHead(head) : head));
  const cell = ({ right, at }, row) => make("td", { class: right ? "right" : null }, named(row[at], 60));
  return plainTable(
    title,
    heads,
    rows.map((row) => plainRow(shown.map((column) => cell(column, row)))),
  );
}
