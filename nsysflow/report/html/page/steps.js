// The steps as small bars, one strip per GPU: how long each took, and which stand out.

const STRIP_PX = 72;
const CUT_AT = 2; // bars longer than two typical steps are cut, so that the others can be compared
const STEP_KINDS = {
  steady: "steady",
  "start-up": "start-up",
  "one-off": "one-off",
  "cut-off": "cut off",
  incomplete: "incomplete",
};

const STEP_KEYS = {
  ArrowRight: 1,
  ArrowUp: 1,
  ArrowLeft: -1,
  ArrowDown: -1,
  PageUp: 10,
  PageDown: -10,
  Home: -Infinity,
  End: Infinity,
};

/** A strip for each process and GPU with steps; nothing without steps. */
function showSteps(data, report) {
  const rows = report.steps.rows.map((row, at) => ({ ...row, at }));
  if (!rows.length) return;
  const tracks = Map.groupBy(rows, ({ report: name, process, device }) => `${name}\n${process}\n${device}`);
  const typicalNs = report.judged.of_steps
    ? report.judged.step_ns
    : median(rows.map((row) => row.duration_ns));
  const kinds = Object.keys(STEP_KINDS).filter((kind) => rows.some((row) => row.kind === kind));
  const several = tracks.size > 1;
  const cut = rows.some((row) => row.duration_ns > CUT_AT * typicalNs)
    ? make("span", {}, make("i", { class: "cut-mark" }, "▲ "), "longer than drawn")
    : null;
  const typical = report.judged.of_steps
    ? make("p", { class: "typical" }, "typical step ", figure(report, "/judged/step_ns", "duration"))
    : null;
  fill(
    "steps",
    titled("Steps", `How long each ${report.steps.name ?? "step"} took; click one to see it in the timeline`),
    make(
      "div",
      { class: "key" },
      kinds.map((kind) => make("span", {}, make("i", { class: `swatch step-${kind}` }), STEP_KINDS[kind])),
      cut,
      typical,
    ),
    [...tracks.values()].map((steps) => stepStrip(report, steps, typicalNs, several)),
  );
}

function median(values) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)];
}

function stepStrip(report, steps, typicalNs, several) {
  const topNs = Math.min(
    CUT_AT * typicalNs,
    Math.max(typicalNs * 1.2, ...steps.map((step) => step.duration_ns)),
  );
  const title = several ? `${steps[0].report} GPU ${steps[0].device}` : `GPU ${steps[0].device}`;
  const readout = make("p", { class: "readout", "aria-hidden": "true" });
  const picture = makeSvg(
    "svg",
    { viewBox: `0 0 ${steps.length} ${STRIP_PX}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    stepPaths(steps, topNs),
    typicalLine(steps.length, typicalNs / topNs),
    makeSvg("rect", { class: "chosen", width: 1, height: STRIP_PX, x: -2 }),
  );
  const strip = make(
    "div",
    {
      class: "strip",
      role: "slider",
      tabindex: 0,
      "aria-label": `Steps of ${title}`,
      "aria-valuemin": 0,
      "aria-valuemax": steps.length - 1,
    },
    picture,
  );
  const width = Math.min(100, Math.max(12, steps.length * 4));
  strip.style.width = `${width}%`;
  chooseSteps(strip, picture, readout, steps, report);
  return make("div", { class: "steps-of" }, make("h3", {}, named(title, 60)), strip, readout);
}

/** One path per kind of step: thousands of steps stay a few elements. */
function stepPaths(steps, topNs) {
  const paths = new Map();
  const cuts = [];
  steps.forEach((step, at) => {
    const height = Math.max(1, Math.min(1, step.duration_ns / topNs) * (STRIP_PX - 8));
    const bar = `M${at + 0.08} ${STRIP_PX}v${-height}h0.84v${height}z`;
    paths.set(step.kind, `${paths.get(step.kind) ?? ""}${bar}`);
    if (step.duration_ns > topNs) cuts.push(`M${at + 0.1} 6L${at + 0.5} 0L${at + 0.9} 6z`);
  });
  const bars = [...paths].map(([kind, d]) => makeSvg("path", { class: `step-${kind}`, d }));
  return cuts.length ? [...bars, makeSvg("path", { class: "cut", d: cuts.join("") })] : bars;
}

function typicalLine(width, share) {
  const y = STRIP_PX - share * (STRIP_PX - 8);
  return makeSvg("line", { class: "typical-line", x1: 0, x2: width, y1: y, y2: y });
}

/** Move along the steps with the pointer or the arrow keys; a click or Enter goes there. */
function chooseSteps(strip, picture, readout, steps, report) {
  let chosen = 0;
  const choose = (at) => {
    chosen = Math.min(steps.length - 1, Math.max(0, at));
    const step = steps[chosen];
    picture.lastChild.setAttribute("x", chosen);
    const base = `/steps/rows/${step.at}`;
    readout.replaceChildren(
      `step ${step.step}: `,
      figure(report, `${base}/duration_ns`, "duration"),
      `, ${STEP_KINDS[step.kind]}, idle `,
      shareFigure(report, `${base}/idle_ns`, `${base}/duration_ns`),
    );
    strip.setAttribute("aria-valuenow", chosen);
    strip.setAttribute("aria-valuetext", readout.textContent);
  };
  const under = (event) =>
    Math.floor(((event.clientX - strip.getBoundingClientRect().left) / strip.clientWidth) * steps.length);
  strip.addEventListener("pointermove", (event) => choose(under(event)));
  strip.addEventListener("click", (event) => {
    choose(under(event));
    goToPlace(steps[chosen]);
  });
  strip.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goToPlace(steps[chosen]);
    else if (event.key in STEP_KEYS) choose(chosen + STEP_KEYS[event.key]);
    else return;
    event.preventDefault();
  });
  choose(0);
}
