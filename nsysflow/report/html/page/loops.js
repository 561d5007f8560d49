// Which loop the verdict, findings, GPU time, phases, steps and flame graph are of.

const OF_LOOP = ["verdict", "findings", "gpus", "phases", "steps", "flame"];

/** Show the steps; where there are other loops, with a field to choose one. */
function startLoops(data, report) {
  showLoop(data, data.judged, report);
  if (!data.loops.length) return;
  const options = [data.loop, ...data.loops.map((loop) => loop.label)];
  const field = make(
    "select",
    { id: "loop-field", onchange: () => chooseLoop(field, data, report) },
    options.map((label, at) => make("option", { value: at }, label)),
  );
  field.value = "0"; // a browser that goes back keeps the last choice
  const chooser = document.getElementById("loop");
  chooser.replaceChildren(
    make("label", { for: field.id }, "Loop"),
    field,
    make("p", {}, "Verdict, findings and pictures are of its steps; the timeline and the tables of all"),
  );
  chooser.hidden = false;
}

async function chooseLoop(field, data, report) {
  const chosen = field.value;
  if (chosen === "0") {
    showLoop(data, data.judged, report);
  } else {
    const loop = JSON.parse(new TextDecoder().decode(await blobOf(data.loops[chosen - 1].blob)));
    if (field.value !== chosen) return; // another one was chosen meanwhile
    showLoop(data, loop.judged, loop.report);
  }
  showWays();
}

/** What is said of the steps of one loop, in the place of what was there. */
function showLoop(data, judged, report) {
  for (const id of OF_LOOP) {
    const section = document.getElementById(id);
    section.replaceChildren();
    section.hidden = id !== "verdict";
  }
  const shown = { ...data, ...judged };
  showVerdict(shown);
  showFindings(shown, report);
  showGpuTime(shown, report);
  showPhases(shown, report);
  showSteps(shown, report);
  showFlame(shown);
}
