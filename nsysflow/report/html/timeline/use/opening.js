// What does the timeline show at first? A few typical steps, not the whole trace.

const OPENING_STEPS = 3;
const OPENING_SLICES = 400; // of the busiest lane, where there are no steps

/** [start, end) of typical steps in the middle of the trace; the whole trace if it is short. */
function openingView() {
  const found = lanes.find(({ kind, rows }) => kind === "steps" && rows);
  return (found && typicalSteps(found)) ?? middleOf(busiestRow());
}

/** Consecutive steps whose length is nearest to the median, the middle ones of equally near ones. */
function typicalSteps({ rows: [row], table, first }) {
  const count = Math.min(OPENING_STEPS, row.n);
  if (!count) return null;
  const lengths = Float64Array.from(row.end, (end, step) => end - row.start[step]);
  const typical = Float64Array.from(lengths).sort()[lengths.length >> 1];
  const steady = about.timeline.step_kinds?.indexOf("steady") ?? -1;
  let best = null;
  for (let step = 0; step + count <= row.n; step++) {
    let off = Math.abs(step + count / 2 - row.n / 2) * 1e-6 * typical;
    for (let at = step; at < step + count; at++) {
      off += Math.abs(lengths[at] - typical);
      if (table.kind && steady >= 0 && table.kind[first + at] !== steady) off += typical;
    }
    if (!best || off < best.off) best = { off, step };
  }
  return withRoom(row.start[best.step], row.end[best.step + count - 1]);
}

function busiestRow() {
  const streams = lanes.filter(({ kind, rows }) => kind === "stream" && rows);
  const rows = streams.map(({ rows: [first] }) => first);
  return rows.sort((one, other) => other.n - one.n)[0] ?? null;
}

function middleOf(row) {
  if (!row || row.n <= OPENING_SLICES) return [about.timeline.start_ns, about.timeline.end_ns];
  const from = (row.n - OPENING_SLICES) >> 1;
  return withRoom(row.start[from], row.end[from + OPENING_SLICES - 1]);
}

function withRoom(start, end) {
  const room = (end - start) * 0.02;
  return [start - room, end + room];
}
