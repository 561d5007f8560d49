// What the difference of the two mean steps consists of, as a waterfall: each part begins where the
// one before it ends.

const ROOM = 0.06; // of the axis, left and right
const LEAST_PCT = 0.1; // what changes by less of a step is in the row of the rest

/** The waterfall, with the figures beside it. */
function showBridge(diff) {
  const { bridge } = diff;
  const rows = waterfall(bridge, (part) => diff.labels[`${part.part}/${part.kind ?? ""}`]);
  const axis = axisOf(rows);
  const cut = axis.from > 0 ? `; the axis begins at ${shownAs("duration", rounded(axis.from))}` : "";
  fill(
    "bridge",
    titled(
      "Bridge",
      `From the mean step of the base to that of the new side; lines: the interval at 95 %${cut}`,
    ),
    deltaTable(
      "Bridge",
      "part",
      rows.map((row) => ({ ...row, drawn: waterfallBar(row, axis) })),
    ),
  );
}

/** The rows: base, each part's change from where the last one ended, new. */
function waterfall({ base_ns: baseNs, new_ns: newNs, change_ns: changeNs, low_ns, high_ns, parts }, labelOf) {
  const least = (LEAST_PCT / 100) * Math.max(baseNs, newNs);
  const shown = parts
    .map((part, at) => ({ part, at }))
    .filter(({ part }) => Math.abs(part.change_ns) >= least);
  const rows = [{ name: "base", whole: true, from: 0, to: baseNs, base: ["/bridge/base_ns", baseNs] }];
  let now = baseNs;
  for (const { part, at } of shown) {
    rows.push({
      ...deltaRow(labelOf(part), part, `/bridge/parts/${at}`),
      from: now,
      to: now + part.change_ns,
    });
    now += part.change_ns;
  }
  const rest = parts.length - shown.length;
  const restNs = changeNs - (now - baseNs);
  if (rest) rows.push({ name: `${rest} more`, from: now, to: now + restNs, change_ns: restNs });
  rows.push({
    ...deltaRow("new", { base_ns: baseNs, new_ns: newNs, change_ns: changeNs, low_ns, high_ns }, "/bridge"),
    base: null,
    whole: true,
    from: 0,
    to: newNs,
  });
  return rows;
}

/** A row of something that changed, with the places of its figures. */
function deltaRow(name, delta, pointer) {
  return {
    name,
    ...delta,
    base: [`${pointer}/base_ns`, delta.base_ns],
    new: [`${pointer}/new_ns`, delta.new_ns],
    change: [`${pointer}/change_ns`, delta.change_ns],
  };
}

/** What part of the axis is drawn: from 0, unless the changes would be too small to see. */
function axisOf(rows) {
  const ends = rows.flatMap(({ from, to, whole, low_ns: low, high_ns: high }) =>
    whole ? [to] : [from, to, from + (low ?? 0), from + (high ?? 0)],
  );
  const least = Math.min(...ends);
  const most = Math.max(...ends);
  const room = (most - least) * ROOM || most * ROOM || 1;
  const from = most - least < least / 2 ? Math.max(0, least - 4 * room) : 0;
  return { from, to: most + room };
}

function waterfallBar({ from, to, whole, low_ns: low, high_ns: high }, axis) {
  const share = (ns) => Math.min(100, Math.max(0, (100 * (ns - axis.from)) / (axis.to - axis.from)));
  const track = make("div", { class: "fall", "aria-hidden": "true" });
  const kind = whole ? "whole" : to > from ? "longer" : "shorter";
  track.append(span(`fall-${kind}`, share(Math.min(from, to)), share(Math.max(from, to))));
  if (!whole && low !== null && low !== undefined)
    track.append(span("whisker", share(from + low), share(from + high)));
  return track;
}

function span(name, left, right) {
  const piece = make("i", { class: name });
  piece.style.left = `${left}%`;
  piece.style.width = `max(1px, ${right - left}%)`;
  return piece;
}

const MARKS = { true: "", false: "~ ", null: "? " };

/** Whether a change exceeds the noise; null if there are too few steps to tell. */
function isClear({ low_ns: low, high_ns: high }) {
  return low === null || low === undefined ? null : low > 0 || high < 0;
}

/** A table of changes: drawn, base, new, change and how sure it is. */
function deltaTable(label, first, rows) {
  const cells = (row) => [
    rowHead(named(row.name, 80)),
    make("td", { class: "drawn" }, row.drawn),
    figureCell(placed(row.base)),
    figureCell(placed(row.new)),
    figureCell(changeCell(row)),
    make("td", { class: "right quiet" }, offOf(row)),
  ];
  return [
    plainTable(
      label,
      [first, "", ...["base", "new", "change", "±"].map(figureHead)],
      rows.map((row) => plainRow(cells(row), row.whole && "sum")),
      "deltas",
    ),
    make("p", { class: "rest" }, "~ within the noise; ? too few steps to tell"),
  ];
}

function placed(figure_) {
  if (!figure_) return "";
  const [pointer, ns] = figure_;
  return make(
    "span",
    { class: "figure", "data-key": pointer, "data-value": ns, "data-unit": "duration" },
    shownAs("duration", ns),
  );
}

function changeCell(row) {
  if (row.change_ns === undefined) return "";
  const mark = row.change_ns && row.change ? MARKS[isClear(row)] : "";
  const text = shownAs("signed", row.change_ns);
  return make(
    "span",
    {
      class: "figure",
      "data-key": row.change?.[0],
      "data-value": row.change_ns,
      "data-unit": "signed",
      "data-mark": mark,
    },
    mark,
    text,
  );
}

/** Half of the interval. */
function offOf({ low_ns: low, high_ns: high }) {
  return low === null || low === undefined ? "" : shownAs("duration", rounded((high - low) / 2));
}
