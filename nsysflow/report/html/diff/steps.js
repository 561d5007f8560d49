// All steps of both sides on one scale: each a line where its duration is.

const LINE_PX = 34;
const FAR = 2; // steps longer than twice the longest mean are at the edge

/** A row of lines for each capture of each side. */
function showDiffSteps(diff) {
  const captures = ["base", "new"]
    .flatMap((side) => diff.steps[side].map((each) => ({ ...each, side })))
    .filter((each) => each.duration_ns.length);
  if (!captures.length) return;
  const all = captures.flatMap((each) => each.duration_ns);
  const means = captures.map((each) => mean(each.duration_ns));
  const longest = Math.min(
    FAR * Math.max(...means),
    all.reduce((most, ns) => Math.max(most, ns), 0),
  );
  const least = all.reduce((fewest, ns) => Math.min(fewest, ns), Infinity);
  const from = longest - least < least / 2 ? Math.max(0, least - (longest - least) * 0.1) : 0;
  const axis = { from, to: longest + (longest - from) * 0.03 || 1 };
  const ends = make(
    "div",
    { class: "ends", "aria-hidden": "true" },
    make("span", {}, shownAs("duration", rounded(axis.from))),
    make("span", {}, shownAs("duration", rounded(axis.to))),
  );
  fill(
    "steps",
    titled("Steps", "A line for each step, at its duration; the thick one is the mean"),
    captures.map((each, at) => captureLines(each, means[at], axis)),
    make("div", { class: "side" }, make("span"), ends),
  );
}

function mean(values) {
  return values.reduce((sum, ns) => sum + ns, 0) / values.length;
}

function captureLines({ side, capture, duration_ns: durations }, middle, axis) {
  const x = (ns) => 1000 * Math.min(1, (ns - axis.from) / (axis.to - axis.from));
  const lines = durations.map((ns) => `M${x(ns).toFixed(2)} 6V${LINE_PX - 6}`).join("");
  const picture = makeSvg(
    "svg",
    { viewBox: `0 0 1000 ${LINE_PX}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    makeSvg("path", { class: `each ${side}`, d: lines }),
    makeSvg("path", { class: "middle", d: `M${x(middle).toFixed(2)} 0V${LINE_PX}` }),
  );
  const words = `${side}: ${durations.length} step${durations.length === 1 ? "" : "s"}, mean ${shownAs("duration", rounded(middle))}`;
  return make("div", { class: "side" }, make("span", {}, words, " ", named(capture, 40)), picture);
}
