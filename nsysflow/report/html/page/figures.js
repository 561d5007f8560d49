// Figures of report.json, each with its raw value and where it stands.

/** The value at a JSON pointer, e.g. `/devices/0/idle_ns`. */
function valueAt(document_, pointer) {
  const keys = pointer.split("/").slice(1);
  return keys.reduce((value, key) => value?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], document_);
}

/** A figure as text. `per`: what it is divided by, e.g. the number of steps. */
function figure(document_, pointer, unit, { per = 1 } = {}) {
  const value = valueAt(document_, pointer);
  const attributes = { class: "figure", "data-key": pointer, "data-value": value ?? "", "data-unit": unit };
  if (per !== 1) attributes["data-per"] = per;
  const mean = per === 1 || value === null || value === undefined ? value : rounded(value / per);
  const text = shownAs(unit, mean);
  if (unit === "duration" && value) attributes.title = `${grouped(String(mean))} ns`;
  return make("span", attributes, text);
}

/** A figure's share of another one. */
function shareFigure(document_, pointer, wholePointer) {
  const value = valueAt(document_, pointer);
  const whole = valueAt(document_, wholePointer);
  const text = shareOf(value, whole);
  const attributes = { class: "figure share", "data-key": pointer, "data-value": value, "data-of": whole };
  return make("span", attributes, text);
}
