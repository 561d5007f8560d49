// The phases as a tree: how long the GPU was busy for each, or idle with the host in it.

const OPEN_DEPTH = 3;

/** The tree; nothing without phases. */
function showPhases(data, report) {
  const { phases, steps, window_ns: windowNs } = report.judged;
  const shown = phases.map((phase, at) => ({ ...phase, at })).filter((phase) => phase.time_ns);
  if (!shown.length) return;
  const rows = shown.map((phase, index) =>
    phaseRow(report, phase, { steps, windowNs, causes: data.causes, parent: hasChildren(shown, index) }),
  );
  rows.forEach((row, index) =>
    row.querySelector(".fold")?.addEventListener("click", () => togglePhase(rows, shown, index)),
  );
  hideDeepPhases(rows, shown);
  fill(
    "phases",
    titled("Phases", phasesCaption(report.judged)),
    plainTable(
      "Phases",
      ["phase", figureHead("GPU time"), "", figureHead("busy"), figureHead("idle"), "bound", "idle mostly"],
      rows,
      "phases",
    ),
  );
}

function phasesCaption({ of_steps: ofSteps, devices }) {
  const perStep = ofSteps ? "; per step" : "";
  const together = devices.length > 1 ? `; ${devices.length} GPUs together` : "";
  return `Busy for it, or idle with the host in it${perStep}${together}`;
}

function hasChildren(phases, index) {
  return phases[index + 1]?.names.length > phases[index].names.length;
}

function phaseRow(report, phase, { steps, windowNs, causes, parent }) {
  const at = `/judged/phases/${phase.at}`;
  const depth = phase.names.length - 1;
  const name = make(
    "th",
    { scope: "row" },
    parent
      ? button("", null, {
          class: "fold",
          "aria-expanded": "true",
          "aria-label": `phases in ${phase.names.at(-1)}`,
        })
      : null,
    button(named(phase.names.at(-1), 60), () => searchTimeline(phase.names.at(-1)), { class: "name" }),
  );
  name.style.paddingInlineStart = `${0.4 + 1.1 * depth + (parent ? 0 : 1.2)}em`;
  const time = (key) =>
    make("td", { class: "right" }, figure(report, `${at}/${key}`, "duration", { per: steps }));
  return make(
    "tr",
    {},
    name,
    time("time_ns"),
    make("td", { class: "drawn" }, phaseBar(phase, windowNs)),
    time("busy_ns"),
    time("idle_ns"),
    make("td", {}, phase.bound.replaceAll("_", " ").replaceAll("+", ", ")),
    make("td", {}, causes[phase.main_cause]?.[0] ?? ""),
  );
}

function phaseBar(phase, windowNs) {
  const bar = make("div", { class: "stack small", "aria-hidden": "true" });
  const colours = [
    [phase.busy_ns, "--class-compute"],
    [phase.idle_ns, phase.main_cause ? `--cause-${phase.main_cause}` : "--cause-unknown"],
  ];
  for (const [ns, colour] of colours) {
    const piece = make("i", { class: colour.startsWith("--cause") ? "idle" : null });
    piece.style.flexBasis = `${(100 * ns) / windowNs}%`;
    piece.style.backgroundColor = `var(${colour})`;
    bar.append(piece);
  }
  return bar;
}

/** Fold or unfold what is nested in a phase. */
function togglePhase(rows, phases, index) {
  const opened = rows[index].querySelector(".fold").getAttribute("aria-expanded") !== "true";
  setPhaseOpen(rows, phases, index, opened);
}

function setPhaseOpen(rows, phases, index, opened) {
  rows[index].querySelector(".fold").setAttribute("aria-expanded", String(opened));
  const depth = phases[index].names.length;
  for (let at = index + 1; at < rows.length && phases[at].names.length > depth; at += 1) {
    const direct = phases[at].names.length === depth + 1;
    rows[at].hidden = !(opened && direct);
    if (!direct) continue;
    rows[at].querySelector(".fold")?.setAttribute("aria-expanded", "false");
  }
}

function hideDeepPhases(rows, phases) {
  phases.forEach((phase, index) => {
    if (phase.names.length === OPEN_DEPTH - 1 && hasChildren(phases, index))
      setPhaseOpen(rows, phases, index, false);
  });
}
