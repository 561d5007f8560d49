// What to change, a card each.

const FIRST_CARDS = 3; // a row of them: the timeline shall be in sight, too

/** The cards, in the order of the plan. */
function showFindings(data, report) {
  if (!report.verdict.valid && !data.findings.length) return;
  if (!data.findings.length) {
    fill("findings", titled("Findings"), make("p", {}, "No change is known that would save 1 % or more."));
    return;
  }
  const cards = data.findings.map((finding, at) => findingCard(finding, at, report));
  const list = (some) => make("ol", { class: "cards" }, some);
  const folded = cards.slice(FIRST_CARDS);
  const more = `${folded.length} more finding${folded.length === 1 ? "" : "s"}`;
  fill(
    "findings",
    titled("Findings", `What to change, in this order; ${data.caption}`),
    list(cards.slice(0, FIRST_CARDS)),
    folded.length && make("details", { class: "more" }, make("summary", {}, more), list(folded)),
  );
}

function findingCard(finding, at, report) {
  const row = report.findings[at];
  return make(
    "li",
    { class: "card" },
    make(
      "p",
      { class: "saving" },
      make("span", { class: "number" }, String(finding.number)),
      savingOf(finding, row, at, report),
    ),
    make("h3", {}, said(finding.title)),
    make("p", { class: "change" }, make("strong", {}, "Try: "), said(finding.change[0])),
    make(
      "p",
      { class: "where" },
      [row.source, row.phase, finding.steps].filter(Boolean).map((each) => make("span", {}, named(each))),
    ),
    savedBar(row),
    make(
      "div",
      { class: "actions" },
      finding.place && button("Show in the timeline", () => showInTimeline(...finding.place)),
      make("details", {}, make("summary", {}, "In full"), explainedParts(finding.explained)),
    ),
  );
}

/** What a finding saves, with the figures of report.json. */
function savingOf(finding, row, at, report) {
  if (!row.saving_high_ns) return make("span", {}, finding.saving);
  const rough = finding.saving.startsWith("save about ");
  const words = { replay: rough ? "save about " : "save ", bound: "save up to ", least: "save at least " }[row.method];
  const isRange = row.method === "replay" && row.saving_low_ns < row.saving_high_ns;
  return make(
    "span",
    {},
    words,
    isRange && figure(report, `/findings/${at}/saving_low_ns`, "duration"),
    isRange && " to ",
    figure(report, `/findings/${at}/saving_high_ns`, "duration"),
    isRange ? " (up to " : " (",
    figure(report, `/findings/${at}/saving_pct`, "percent"),
    ")",
  );
}

/** How much of a step is saved, drawn. */
function savedBar(row) {
  if (!row.saving_high_ns) return null;
  const bar = make("div", { class: "saved", "aria-hidden": "true" }, make("i"));
  bar.firstChild.style.width = `${Math.min(100, row.saving_pct)}%`;
  if (row.method === "bound") bar.classList.add("at-most");
  return bar;
}
