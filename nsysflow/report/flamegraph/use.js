// Enlarge a box by a click, find boxes by a part of their name.
const picture = document.currentScript.ownerSVGElement;
const SVG = picture.namespaceURI;
const XHTML = "http://www.w3.org/1999/xhtml";
const LETTER = 6.6; // the width of a letter, as in svg.py
const NEAR = 0.002; // places are written with three decimals

const boxes = [...picture.querySelectorAll(".box")].map((element) => {
  const of = (name) => Number(element.getAttribute(name));
  const [name] = element.querySelector("title").textContent.split("\n");
  const text = element.querySelector("text");
  return { element, text, name, x: of("x"), y: of("y"), width: of("width") };
});
const whole = boxes[0];

function inside(box, other) {
  return box.x >= other.x - NEAR && box.x + box.width <= other.x + other.width + NEAR;
}

function label(name, letters) {
  if (name.length <= letters) return name;
  return letters > 3 ? name.slice(0, letters - 1) + "…" : "";
}

function enlarge(shown) {
  const scale = whole.width / shown.width;
  for (const box of boxes) {
    const above = box.y < shown.y && inside(shown, box);
    const below = box.y >= shown.y && inside(box, shown);
    const width = above ? whole.width : box.width * scale;
    box.element.classList.toggle("above", above);
    box.element.classList.toggle("away", !above && !below);
    box.element.setAttribute("x", above ? whole.x : whole.x + (box.x - shown.x) * scale);
    box.element.setAttribute("width", width);
    box.text.textContent = label(box.name, Math.floor((width - 6) / LETTER));
  }
}

function share(found) {
  // a box inside another one that was found counts once: outer boxes come first
  const outermost = [];
  for (const box of found) {
    if (!outermost.some((outer) => inside(box, outer))) outermost.push(box);
  }
  const width = outermost.reduce((sum, box) => sum + box.width, 0);
  return `${((100 * width) / whole.width).toFixed(1)} % of the idle time`;
}

function find(typed, answer) {
  const wanted = typed.trim().toLowerCase();
  const found = boxes.filter((box) => wanted && box.name.toLowerCase().includes(wanted));
  for (const box of boxes) box.element.classList.toggle("found", found.includes(box));
  answer.textContent = !wanted ? "" : found.length ? share(found) : "not found";
}

function made(name, where, attributes) {
  const element = document.createElementNS(where, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function addSearch() {
  const right = whole.x + whole.width;
  const answer = made("text", SVG, { class: "about answer", x: right - 210, y: 22 });
  const frame = made("foreignObject", SVG, { x: right - 200, y: 6, width: 200, height: 26 });
  const field = made("input", XHTML, { type: "search", placeholder: "find a function or file" });
  field.addEventListener("input", () => find(field.value, answer));
  frame.append(field);
  picture.append(answer, frame);
}

for (const box of boxes) box.element.addEventListener("click", () => enlarge(box));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") enlarge(whole);
});
addSearch();
