// What is written in a bar, and what is a slice called? Names are cut to the room there is.

const LABEL_PX = 11;
const NARROWEST_LABEL_PX = 26;
const WITH_DURATION_PX = 190;
const LONGEST_LABEL = 300; // letters; a name may have thousands

/** The words for a slice: its name, its cause, the number of its step. */
function nameOfSlice(report, table, row) {
  const { tables } = reports[report];
  if (table === "gaps") return about.timeline.causes[tables.gaps.cause[row]].label;
  if (table === "steps") return stepName(tables.steps, row);
  return reports[report].nameOf(table, row);
}

function stepName(steps, row) {
  return `step ${steps.step ? steps.step[row] : row}`;
}

const MOST_WIDTHS = 20000;
const textWidths = new Map(); // by font and text: measuring takes longer than writing

function textWidth(context, text) {
  const key = context.font + text;
  let width = textWidths.get(key);
  if (width !== undefined) return width;
  if (textWidths.size > MOST_WIDTHS) textWidths.clear();
  width = context.measureText(text).width;
  textWidths.set(key, width);
  return width;
}

/** `text` cut with an ellipsis so that it fits; empty where not even a few letters do. */
function cutTo(context, text, width) {
  const whole = textWidth(context, text);
  if (whole <= width) return text;
  let letters = Math.floor((text.length * width) / whole) - 1;
  const cut = () => `${text.slice(0, letters)}…`;
  while (letters >= 3 && textWidth(context, cut()) > width) letters -= 1;
  return letters >= 3 ? cut() : "";
}

/** Write in the bars that `found` lists: {row, slice, left, right, top, bottom} in device pixels. */
function drawLabels(context, found, theme, ratio) {
  context.font = `${LABEL_PX}px ${theme.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const { row, slice, left, right, top, bottom, faded, run } of found) {
    const { table } = row.lane;
    const room = (right - left) / ratio - 8;
    const cut = cutTo(context, labelOf(row, slice, !run && room > WITH_DURATION_PX), room);
    if (!cut) continue;
    context.fillStyle = faded ? theme.muted : tonesOf(theme, table.key)[row.kind[slice]].ink;
    context.fillText(cut, left / ratio + 4, (top + bottom) / ratio / 2 + 0.5);
  }
}

/** Samples of one stack that follow each other share a label: add that to `labels` for each run in
 * sight that no slice of it is wide enough for. In device pixels, as the bars. */
function labelRuns(row, { start: origin, nsPerPixel, left, width, labelPx }, top, bottom, labels) {
  const { table } = row.lane;
  const to = firstFrom(row.start, origin + width * nsPerPixel);
  const nameAt = (slice) => table.name[tableRow(row, slice)];
  const x = (time) => left + Math.min(Math.max((time - origin) / nsPerPixel, 0), width);
  let first = firstAbove(row.end, origin);
  if (to - first > DENSE * width) return;
  for (let slice = first + 1; slice <= to; slice++) {
    const near = slice < to && row.start[slice] - row.end[slice - 1] < 2 * nsPerPixel;
    if (near && nameAt(slice) === nameAt(first)) continue;
    const [from, until] = [x(row.start[first]), x(row.end[slice - 1])];
    const alone = slice === first + 1 && until - from >= labelPx;
    if (until - from >= 2 * labelPx && !alone) {
      labels.push({ row, slice: first, left: from, right: until, top, bottom, run: true });
    }
    first = slice;
  }
}

/** The name, and how long it lasts where that matters most or there is room. */
function labelOf(row, slice, roomy) {
  const { table, report } = row.lane;
  const name = nameOfSlice(report.number, table.key, tableRow(row, slice)).slice(0, LONGEST_LABEL);
  if (!name || !(roomy || table.key === "gaps" || table.key === "steps")) return name;
  return `${name}  ${shownAs("duration", row.end[slice] - row.start[slice])}`;
}
