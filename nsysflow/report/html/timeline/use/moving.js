// How does one get from slice to slice, and how does the view follow?

const ZOOM_STEP = 1.4;
const PAN_SHARE = 0.2;
const LEAST_SEEN_PX = 2; // a slice that one moves to is made at least this wide

/** Zoom around a time; a factor above 1 shows less. */
function zoomAt(time, factor) {
  const { start, end } = state.view;
  const length = Math.max((end - start) / factor, NARROWEST_NS);
  const from = time - ((time - start) / (end - start)) * length;
  setView(from, from + length);
}

function zoomBy(factor) {
  const selected = state.selected && placeOf(state.selected);
  const { start, end } = state.view;
  const middle = selected ? middleOfSlice(selected) : NaN;
  zoomAt(middle > start && middle < end ? middle : viewMiddle(), factor);
}

function middleOfSlice({ row, slice }) {
  return (row.start[slice] + row.end[slice]) / 2;
}

function panBy(share) {
  const { start, end } = state.view;
  setView(start + (end - start) * share, end + (end - start) * share);
}

function showWholeTrace() {
  setView(about.timeline.start_ns, about.timeline.end_ns);
}

function showTypicalSteps() {
  setView(...openingView());
}

/** Bring a time of a report into view, with a little room around it, and scroll to the timeline. A
 * gap, step, operation or phase of exactly this time is selected. */
function goTo(report, startNs, endNs) {
  const room = Math.max((endNs - startNs) * 0.15, NARROWEST_NS);
  setView(startNs - room, endNs + room);
  document.getElementById("timeline").scrollIntoView({ block: "nearest" });
  const exact = exactPlace(report, startNs, endNs);
  if (exact) moveTo(exact);
  else scrollToReport(report);
}

/** Bring the first lane of a report into sight. */
function scrollToReport(number) {
  const { lane } = surface.layout.items.find(({ lane: of }) => of?.report.number === number) ?? {};
  if (lane) scrollToLane(lane, 0);
}

/** The slice of a report with these times. */
function exactPlace(report, start, end) {
  for (const kind of ["gaps", "steps", "stream", "phases"]) {
    const mine = lanes.filter((lane) => lane.kind === kind && lane.report.number === report);
    for (const row of mine.flatMap(({ rows }) => rows ?? [])) {
      const slice = firstFrom(row.start, start);
      if (row.start[slice] === start && row.end[slice] === end) return { row, slice };
    }
  }
  return null;
}

/** Select a place and bring it into sight, sideways and up or down. */
function moveTo({ row, slice }) {
  const { lane } = row;
  if (openGroupOf(lane)) fitSurface();
  surface.lane = lane;
  bringToView(row.start[slice], row.end[slice]);
  select(lane.report.number, lane.table.key, tableRow(row, slice));
  scrollToLane(lane, row.depth);
}

/** Select a row of a table, if it is drawn. */
function moveToRow(link) {
  const place = placeOf(link);
  if (place) moveTo(place);
}

/** Open and scroll to the lane of what is selected. */
function scrollToSelected() {
  const place = state.selected && placeOf(state.selected);
  if (!place) return;
  if (openGroupOf(place.row.lane)) fitSurface();
  scrollToLane(place.row.lane, place.row.depth);
}

/** Pan, and zoom only if the slice is longer than the view or too short to be seen. */
function bringToView(from, to) {
  const { start, end } = state.view;
  const pixel = lanesScale().nsPerPixel;
  const length = to - from;
  const middle = (from + to) / 2;
  if (length > (end - start) * 0.95) setView(from - length * 0.1, to + length * 0.1);
  else if (length < LEAST_SEEN_PX * pixel) zoomTo(middle, Math.max(length, 1));
  else if (from < start || to > end) setView(middle - (end - start) / 2, middle + (end - start) / 2);
}

/** So close that a slice is about a twentieth of the width. */
function zoomTo(middle, length) {
  setView(middle - 10 * length, middle + 10 * length);
}

/** Zoom until the area, else what is selected, fills most of the width. */
function zoomToSelected() {
  if (state.area) return setView(state.area.start, state.area.end);
  const place = state.selected && placeOf(state.selected);
  if (!place) return;
  const { row, slice } = place;
  const room = Math.max((row.end[slice] - row.start[slice]) * 0.1, 1);
  setView(row.start[slice] - room, row.end[slice] + room);
}

function scrollToLane(lane, depth) {
  const [top, bottom] = depthPlace(lane, depth);
  const { lanesBox, height } = surface;
  const room = height - AXIS_PX;
  if (top < surface.held) return;
  const above = surface.held + HEADER_PX + 4;
  if (top < lanesBox.scrollTop + surface.held + 4) lanesBox.scrollTop = Math.max(0, top - above);
  else if (bottom > lanesBox.scrollTop + room) lanesBox.scrollTop = bottom - room + HEADER_PX;
}

/** Where the keyboard is: the selected slice; else what is nearest to the middle of the view. */
function currentPlace() {
  const selected = state.selected && placeOf(state.selected);
  if (selected) return selected;
  const rows = shownRows(surface.layout).filter(({ n }) => n);
  return rows.length ? { row: rows[0], slice: nearestSlice(rows[0], viewMiddle()) } : null;
}

function viewMiddle() {
  return (state.view.start + state.view.end) / 2;
}

/** The slice of a row that is nearest to a time. */
function nearestSlice(row, time) {
  const after = Math.min(firstAbove(row.end, time), row.n - 1);
  if (after === 0 || row.start[after] <= time) return after;
  return row.start[after] - time <= time - row.end[after - 1] ? after : after - 1;
}

/** The previous or next slice of the lane's row. */
function moveAlong(by) {
  const place = currentPlace();
  if (!place) return;
  const slice = state.selected ? place.slice + by : place.slice;
  if (slice >= 0 && slice < place.row.n) moveTo({ row: place.row, slice });
}

/** The row above or below, at the same time. */
function moveAcross(by) {
  const place = currentPlace();
  if (!place) return;
  if (!state.selected) return moveTo(place);
  const rows = shownRows(surface.layout).filter(({ n }) => n);
  const row = rows[rows.indexOf(place.row) + by];
  if (!row) return;
  const time = Math.min(Math.max(place.row.start[place.slice], state.view.start), state.view.end);
  moveTo({ row, slice: nearestSlice(row, time) });
}

/** The next slice of the same name (for a gap: of the same cause) in the row. */
function moveToSame(by) {
  const { row, slice } = currentPlace() ?? {};
  if (!row) return;
  const { table } = row.lane;
  const key = table.key === "gaps" ? table.cause : table.name;
  if (!key) return;
  const wanted = key[tableRow(row, slice)];
  for (let at = slice + by; at >= 0 && at < row.n; at += by) {
    if (key[tableRow(row, at)] === wanted) return moveTo({ row, slice: at });
  }
}

/** The next shorter gap of all GPUs; from anything but a gap the longest. */
function moveToGap(backwards) {
  const { report, table, row } = state.selected ?? {};
  const from = table === "gaps" && { report, row, ns: reports[report].tables.gaps.duration[row] };
  const gap = nextLongest(from, backwards && from);
  if (gap) moveToRow({ report: gap.report, table: "gaps", row: gap.row });
}
