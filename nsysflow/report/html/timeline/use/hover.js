// What does the pointer point at? A small box beside it.

const HOVER_SPACE_PX = 14;

function showTip(hit, event) {
  const { tip } = surface;
  tip.hidden = !hit || event.pointerType === "touch";
  if (tip.hidden) return;
  const { lane } = hit.row;
  const at = { report: lane.report.number, table: lane.table.key, row: tableRow(hit.row, hit.slice) };
  const name = nameOfSlice(at.report, at.table, at.row);
  const length = shownAs("duration", lane.table.duration[at.row]);
  const lines = [make("strong", {}, named(name || "…", 90)), make("span", {}, `${sortOf(at)}, ${length}`)];
  if (at.table === "gaps") lines.push(...tipCauses(at));
  tip.replaceChildren(...lines);
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + HOVER_SPACE_PX, innerWidth - width - 4);
  const below = event.clientY + HOVER_SPACE_PX;
  const top = below + height > innerHeight ? event.clientY - height - HOVER_SPACE_PX : below;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function tipCauses(at) {
  const causes = causesOf(at);
  const whole = reports[at.report].tables.gaps.duration[at.row];
  if (causes.length < 2) return [];
  return causes.map(([cause, ns]) =>
    make("span", {}, `${about.timeline.causes[cause].label}: ${shareOf(ns, whole)}`)
  );
}
