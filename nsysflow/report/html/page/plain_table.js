// A small table with all of its rows, in which figures stand beside bars.

/** It scrolls sideways where it has no room. `heads`: texts, or {head, kind}; an empty one is that of
 * a drawn column. `rows`: elements. */
function plainTable(label, heads, rows, kind = "") {
  const cells = heads.map((each) => {
    const { head, kind: headKind = null } = typeof each === "string" ? { head: each } : each;
    return make("th", { scope: "col", class: headKind }, head || make("span", { class: "unseen" }, "drawn"));
  });
  return make(
    "div",
    { class: "scrolled", tabindex: 0, role: "region", "aria-label": label },
    make(
      "table",
      { class: `plain ${kind}` },
      make("thead", {}, make("tr", {}, cells)),
      make("tbody", {}, rows),
    ),
  );
}

/** The heading of figures, which are set to the right. */
function figureHead(head) {
  return { head, kind: "right" };
}

function plainRow(cells, kind = null) {
  return make("tr", { class: kind }, cells);
}

/** The cell that a row is called by. */
function rowHead(...content) {
  return make("th", { scope: "row" }, content);
}

function figureCell(...content) {
  return make("td", { class: "right" }, content);
}
