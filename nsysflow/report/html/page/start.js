// Fill the page.

/** Show everything around the timeline: first the words, then what is in report.json. */
async function startPage() {
  startTheme();
  startTips();
  const data = about.page;
  showVerdict({ ...data, ...data.judged }); // the rest waits for report.json
  const report = JSON.parse(new TextDecoder().decode(await blobOf("report")));
  await showRanks(about.heat);
  startLoops(data, report);
  const sources = tablesOf(data, report);
  const open = showTables("tables", sources, {
    caption: "All tables of report.json",
    first: state.tab || "kernels",
    onopen: setTab,
  });
  onChange((what) => what === "tab" && open?.(state.tab));
  printTables(sources);
  showWays();
  document.documentElement.dataset.ready = "";
}
startPage();
