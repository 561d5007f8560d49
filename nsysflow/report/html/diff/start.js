// Fill the page of a comparison.

/** Show the verdict, the bridge, the steps and the tables. */
function startDiff() {
  startTheme();
  startTips();
  const diff = JSON.parse(document.getElementById("diff").textContent);
  document.getElementById("title").replaceChildren("Comparison");
  fill(
    "verdict",
    make("h2", { class: "unseen" }, "Verdict"),
    make("p", { class: "headline" }, said(diff.text)),
    make("p", { class: "steps-sentence" }, said(diff.title)),
    remarks(diff.remarks),
  );
  showBridge(diff);
  showDiffSteps(diff);
  showDiffPhases(diff);
  const sources = diffTables(diff);
  showTables("tables", sources, {
    caption: "What changed, the largest change first",
    first: sources[0]?.name,
  });
  printTables(sources);
  showWays();
  document.documentElement.dataset.ready = "";
}
startDiff();
