// Make elements. Names from a report only ever become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes named `on…` are listeners; true sets an empty one, false and null none. */
function make(tag, attributes = {}, ...children) {
  return filledElement(document.createElement(tag), attributes, children);
}

/** The same inside of an SVG. */
function makeSvg(tag, attributes = {}, ...children) {
  return filledElement(document.createElementNS(SVG, tag), attributes, children);
}

function filledElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child || child === 0));
  return element;
}

/** A button. */
function button(label, onclick, attributes = {}) {
  return make("button", { type: "button", onclick, ...attributes }, label);
}

const LONGEST_NAME = 160;

/** A name from the program or the report, whatever its letters are. A very long one is cut in the
 * middle; its tooltip has all of it. */
function named(text, longest = LONGEST_NAME) {
  const whole = String(text);
  if (whole.length <= longest) return make("bdi", {}, whole);
  const half = Math.floor((longest - 1) / 2);
  const cut = `${whole.slice(0, half)}…${whole.slice(-half)}`;
  return make("bdi", { "data-tip": whole, tabindex: 0 }, cut);
}

/** A sentence; a number stays on one line with its unit. */
function said(text) {
  return make("bdi", {}, String(text).replace(/(?<=\d) (?=(?:%|[num]?s\b))/g, "\u00a0"));
}

/** A section's heading, with what it says in small print. */
function titled(title, caption = "") {
  return make("div", { class: "titled" }, make("h2", {}, title), caption && make("p", {}, caption));
}

/** Show an element of the page with this content. */
function fill(id, ...content) {
  const element = document.getElementById(id);
  element.replaceChildren(...content.flat().filter(Boolean));
  element.hidden = false;
  return element;
}
