// The ranks by steps as a heat map: who took longer than the others, and when.

const HOTTEST = 200; // tenths of a percent of a step: from here on the colour is the same
const RANK_PX = { least: 1, most: 14, all: 512 };
const HEAT_KEYS = {
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  PageDown: [10, 0],
  PageUp: [-10, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

/** The heat map of many ranks; nothing of few. */
async function showRanks(heat) {
  if (!heat) return;
  const count = heat.ranks.length * heat.steps.length;
  const cells = { ...heat };
  for (const name of ["duration", "own", "late", "cost", "longer"]) {
    const column = heat.columns[name];
    cells[name] = column ? await columnOf(column, Float64Array) : new Uint8Array(count);
  }
  const canvas = make("canvas", {
    width: heat.steps.length,
    height: heat.ranks.length,
    role: "slider",
    tabindex: 0,
    "aria-label": "Ranks by step",
    "aria-valuemin": 0,
    "aria-valuemax": count - 1,
  });
  const { least, most, all } = RANK_PX;
  const height = Math.min(most, Math.max(least, Math.floor(all / heat.ranks.length)));
  canvas.style.height = `${height * heat.ranks.length}px`;
  const readout = make("p", { class: "readout", "aria-hidden": "true" });
  fill(
    "ranks",
    titled("Ranks by step", "How much longer each rank took than the median rank, its waits left out"),
    make(
      "div",
      { class: "key" },
      make("span", {}, make("i", { class: "swatch longer" }), "20 % of a step longer, or more"),
      make("span", {}, `a line per rank, ${cells.ranks[0]} first; a column per step`),
    ),
    make("div", { class: "heat" }, canvas),
    readout,
  );
  const draw = () => drawHeat(canvas, cells);
  draw();
  document.addEventListener("themechange", draw);
  chooseCells(canvas, readout, cells);
}

/** Each cell between the colour of the ground and that of a warning. */
function drawHeat(canvas, { longer, duration }) {
  const [ground, hot] = ["--raised", "--warn"].map((name) => {
    canvas.style.color = `var(${name})`;
    return rgbOf(getComputedStyle(canvas).color);
  });
  canvas.style.color = "";
  const picture = new ImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(picture.data.buffer);
  for (let at = 0; at < pixels.length; at++) {
    const heat = Math.min(1, longer[at] / HOTTEST);
    if (duration[at]) pixels[at] = packedColour(mixedColour(ground, hot, heat));
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** Move over the cells with the pointer or the arrow keys. */
function chooseCells(canvas, readout, cells) {
  const last = { rank: cells.ranks.length - 1, step: cells.steps.length - 1 };
  const within = (value, most) => Math.min(most, Math.max(0, value));
  let [rank, step] = hottest(cells);
  const choose = (newRank, newStep) => {
    rank = within(newRank, last.rank);
    step = within(newStep, last.step);
    const at = rank * cells.steps.length + step;
    readout.replaceChildren(`${cells.ranks[rank]}, step ${cells.steps[step]}: `, said(heatText(cells, at)));
    canvas.setAttribute("aria-valuenow", at);
    canvas.setAttribute("aria-valuetext", readout.textContent);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    choose(
      Math.floor(((event.clientY - box.top) / box.height) * cells.ranks.length),
      Math.floor(((event.clientX - box.left) / box.width) * cells.steps.length),
    );
  });
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in HEAT_KEYS)) return;
    const [down, right] = HEAT_KEYS[event.key];
    choose(rank + down, step + right);
    event.preventDefault();
  });
  choose(rank, step);
}

/** The rank and step that took longest beyond the others. */
function hottest({ longer, steps }) {
  const at = longer.reduce((best, value, place) => (value > longer[best] ? place : best), 0);
  return [Math.floor(at / steps.length), at % steps.length];
}

function heatText({ duration, own, late, cost, longer }, at) {
  if (!duration[at]) return "this rank lacks the step";
  const time = (ns) => shownAs("duration", ns);
  const beyond = `${shownAs("percent", longer[at] / 10)} of a step more than the median rank`;
  return [
    `step ${time(duration[at])}, own time ${time(own[at])}`,
    longer[at] ? beyond : "",
    late[at] ? `${time(late[at])} late to collectives` : "",
    cost[at] ? `costs the others ${time(cost[at])}` : "",
  ]
    .filter(Boolean)
    .join("; ");
}
