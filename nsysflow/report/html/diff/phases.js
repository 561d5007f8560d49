// The same difference by phase.

/** The phases that changed, the largest change first; nothing without phases. */
function showDiffPhases(diff) {
  const phases = diff.bridge.phases
    .map((phase, at) => deltaRow(phase.phase || diff.outside, phase, `/bridge/phases/${at}`))
    .filter((phase) => phase.change_ns);
  if (!phases.length) return;
  const most = Math.max(
    ...phases.map((phase) =>
      Math.max(Math.abs(phase.change_ns), Math.abs(phase.low_ns ?? 0), Math.abs(phase.high_ns ?? 0)),
    ),
  );
  const axis = { from: -most, to: most };
  const rows = phases.map((phase) => ({
    ...phase,
    drawn: waterfallBar({ ...phase, from: 0, to: phase.change_ns }, axis),
  }));
  fill(
    "phases",
    titled("Phases", "The same change by phase; to the left: shorter, to the right: longer"),
    deltaTable("Phases", "phase", rows),
  );
}
