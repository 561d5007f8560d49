// Where in the timeline something is.

/** Zoom the timeline to a time of a report's clock: of a row with `report`, `start_ns`, `end_ns`. */
function goToPlace({ report, start_ns: start, end_ns: end }) {
  const reports = about.timeline.reports;
  const number = Math.max(
    0,
    reports.findIndex(({ name }) => name === report),
  );
  const { origin_ns: origin, zero_ns: zero = 0 } = reports[number];
  const shift = origin - Number(zero);
  showInTimeline(number, start + shift, end + shift);
}

/** Zoom the timeline to a time of the page's axis, and bring the timeline into sight. */
function showInTimeline(report, start, end) {
  goTo(report, start, end);
  lookAtTimeline();
}

/** Mark everything of a name in the timeline. */
function searchTimeline(name) {
  setQuery(name);
  lookAtTimeline();
}

function lookAtTimeline() {
  document.getElementById("timeline").scrollIntoView({ block: "start" });
  document.getElementById("timeline-canvas").focus({ preventScroll: true });
}
