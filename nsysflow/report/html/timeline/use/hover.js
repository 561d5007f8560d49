// What does the pointer point at? A small box beside it.

const HOVER_SPACE_PX = 14;

/** Describe what `hitAt` found; hide the box where there is nothing to say. */
function showTip(hit, event) {
  const { tip } = surface;
  const lines = hit && event.pointerType !== "touch" ? tipLines(hit, event.offsetX) : [];
  tip.hidden = !lines.length;
  if (tip.hidden) return;
  tip.replaceChildren(...lines);
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + HOVER_SPACE_PX, innerWidth - width - 4);
  const below = event.clientY + HOVER_SPACE_PX;
  const top = below + height > innerHeight ? event.clientY - height - HOVER_SPACE_PX : below;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function tipLines({ row, slice, lane }, x) {
  if (lane?.kind === "counter" && x >= surface.titles) return counterLines(lane, x);
  if (!row) return [];
  const { report, table } = row.lane;
  const at = { report: report.number, table: table.key, row: tableRow(row, slice) };
  const name = nameOfSlice(at.report, at.table, at.row);
  const length = shownAs("duration", row.end[slice] - row.start[slice]);
  const words = make("span", {}, `${sortOf(at)}, ${length}`);
  const lines = [make("strong", {}, named(name || "…", 90)), words];
  return at.table === "gaps" ? [...lines, ...tipCauses(at)] : lines;
}

/** The value of a counter at a pixel: that of the sample before. */
function counterLines(lane, x) {
  const time = lanesScale().time(x - surface.titles);
  const sample = lane.times ? firstAbove(lane.times, time) - 1 : -1;
  if (sample < 0) return [];
  const value = UNITS.percent(lane.table.value[lane.first + sample]);
  return [make("strong", {}, value), make("span", {}, shortTitle(lane))];
}

function tipCauses(at) {
  const causes = causesOf(at);
  const whole = reports[at.report].tables.gaps.duration[at.row];
  if (causes.length < 2) return [];
  return causes.map(([cause, ns]) =>
    make("span", {}, `${about.timeline.causes[cause].label}: ${shareOf(ns, whole)}`)
  );
}
