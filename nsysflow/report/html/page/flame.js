// The idle flame graph: what the host ran while the GPU waited.

const FLAME_ROW_PX = 20;
const NARROWEST_BOX = 1 / 2000;

/** Draw it from its boxes; nothing where no stacks were recorded. */
function showFlame({ flame, flame_steps: steps, flame_legend: legend }) {
  if (!flame) return;
  const boxes = boxesOf(flame);
  const elements = boxes.map((box) => flameBox(box, boxes[0], steps));
  const picture = make("div", { class: "flame", role: "group", "aria-label": "Idle flame graph" }, elements);
  picture.style.height = `${FLAME_ROW_PX * (1 + Math.max(...boxes.map((box) => box.depth)))}px`;
  const answer = make("span", { role: "status" });
  const field = make("input", {
    type: "search",
    "aria-label": "Find a function or file",
    placeholder: "find a function or file",
    oninput: () => findBoxes(boxes, elements, field.value, answer),
  });
  const enlarge = (at) => enlargeBox(boxes, elements, at);
  elements.forEach((element, at) => element.addEventListener("click", () => enlarge(at)));
  picture.addEventListener("keydown", (event) => moveInFlame(event, boxes, elements, enlarge));
  const key = Object.entries(legend).map(([kind, label]) =>
    make("span", {}, make("i", { class: `swatch flame-${kind}` }), label),
  );
  fill(
    "flame",
    titled(
      "Idle flame graph",
      "What the host ran while the GPU waited. Width: idle time. From the top: phase, cause, functions, the caller first",
    ),
    make(
      "div",
      { class: "key" },
      key,
      field,
      answer,
      button("Show all", () => enlarge(0)),
    ),
    picture,
  );
  enlarge(0);
}

/** The boxes of a tree that are wide enough to be seen, each before those below it. */
function boxesOf(whole) {
  const boxes = [];
  const add = ({ name, file, line, kind, ns, children }, left, depth) => {
    const where = file && ` (${file}${line === null ? "" : `:${line}`})`;
    boxes.push({ name: `${name}${where}`, kind, left, ns, depth, at: boxes.length });
    let inner = left;
    for (const child of children) {
      if (child.ns >= whole.ns * NARROWEST_BOX) add(child, inner, depth + 1);
      inner += child.ns;
    }
  };
  add(whole, 0, 0);
  return boxes;
}

function flameBox({ name, kind, ns, depth, at }, whole, steps) {
  const time = `${shownAs("duration", rounded(ns / steps))}${steps > 1 ? " per step" : ""}, ${shareOf(ns, whole.ns)}`;
  const element = button(named(name, 200), null, {
    class: `flame-${kind}`,
    tabindex: at ? -1 : 0,
    "data-tip": `${name}\n${time}`,
    "data-value": ns,
  });
  element.style.top = `${depth * FLAME_ROW_PX}px`;
  return element;
}

function insideBox(inner, outer) {
  return inner.left >= outer.left && inner.left + inner.ns <= outer.left + outer.ns;
}

/** Give a box the whole width; what is above it stays, what is beside it goes. */
function enlargeBox(boxes, elements, at) {
  const shown = boxes[at];
  boxes.forEach((box, index) => {
    const above = box.depth < shown.depth && insideBox(shown, box);
    const below = box.depth >= shown.depth && insideBox(box, shown);
    const { style, classList } = elements[index];
    classList.toggle("above", above);
    elements[index].hidden = !above && !below;
    style.left = above ? "0" : `${(100 * (box.left - shown.left)) / shown.ns}%`;
    style.width = above ? "100%" : `${(100 * box.ns) / shown.ns}%`;
  });
}

/** Mark the boxes whose name has this, and say how much of the idle time they are. */
function findBoxes(boxes, elements, typed, answer) {
  const wanted = typed.trim().toLowerCase();
  const found = boxes.filter((box) => wanted && box.name.toLowerCase().includes(wanted));
  const outermost = [];
  for (const box of found) if (!outermost.some((outer) => insideBox(box, outer))) outermost.push(box);
  elements.forEach((element, at) => element.classList.toggle("found", found.includes(boxes[at])));
  const ns = outermost.reduce((sum, box) => sum + box.ns, 0);
  answer.textContent = !wanted
    ? ""
    : found.length
      ? `${shareOf(ns, boxes[0].ns)} of the idle time`
      : "not found";
}

/** Arrow keys go from box to box, Escape back to all. */
function moveInFlame(event, boxes, elements, enlarge) {
  const now = elements.indexOf(document.activeElement);
  if (now < 0) return;
  const box = boxes[now];
  const visible = (other) => !elements[other.at].hidden;
  const beside = boxes
    .filter((other) => other.depth === box.depth && visible(other))
    .sort((a, b) => a.left - b.left);
  const place = beside.indexOf(box);
  const next = {
    ArrowRight: () => beside[place + 1],
    ArrowLeft: () => beside[place - 1],
    ArrowDown: () =>
      boxes.find((other) => other.depth === box.depth + 1 && insideBox(other, box) && visible(other)),
    ArrowUp: () => boxes.find((other) => other.depth === box.depth - 1 && insideBox(box, other)),
    Escape: () => boxes[0],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  if (event.key === "Escape") enlarge(0);
  const target = next();
  if (!target) return;
  elements[now].tabIndex = -1;
  elements[target.at].tabIndex = 0;
  elements[target.at].focus();
}
