// Where are the ticks, and what do they say?

const TICK_PX = 110; // room for a label such as "+123.4 ms"
const TICK_UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
  [1, "ns"],
];

/** The next of 1, 2, 5, 10, 20... at or above a number of ns. */
function niceStep(ns) {
  const power = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
  const factor = [1, 2, 5, 10].find((times) => times * power >= ns * (1 - 1e-12));
  return factor * power;
}

/** {base, step, ticks}: `base` is a round time at or before the view that labels count from, so that
 * they stay short: 0, unless the view is a small part of the time before it. */
function ticksOf(start, end, width) {
  const step = niceStep(((end - start) * TICK_PX) / Math.max(width, TICK_PX));
  const round = 10 ** Math.ceil(Math.log10(Math.max((end - start) * 2, 10)));
  const base = start > 20 * round ? Math.floor(start / round) * round : 0;
  const ticks = [];
  for (let time = Math.ceil(start / step) * step; time < end; time += step) ticks.push(time);
  return { base, step, ticks };
}

/** [ns, name] of the unit of an axis whose largest label is of so many ns. */
function axisUnit({ step }, largest) {
  return TICK_UNITS.find(([size]) => size <= Math.max(largest, step)) ?? TICK_UNITS.at(-1);
}

/** `ns` from the base, with no more decimals than ticks need: "+12.5 us". */
function tickLabel(time, { base, step }, [unit, name]) {
  const decimals = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
  const value = ((time - base) / unit).toFixed(Math.min(decimals, 9));
  return `${base ? "+" : ""}${value} ${name}`;
}

/** A time to the nanosecond in the unit of an axis: "12,345.678 us". */
function timeIn(ns, [unit, name]) {
  const decimals = Math.round(Math.log10(unit));
  const [whole, rest = ""] = (Math.round(ns) / unit).toFixed(decimals).split(".");
  const digits = rest.replace(/0+$/, "");
  return `${grouped(whole)}${digits && "."}${digits} ${name}`;
}

/** A time exactly, digits in groups of three: "1.234 567 890 s". */
function exactTime(ns) {
  const whole = Math.floor(ns / 1e9);
  const rest = String(Math.round(ns - whole * 1e9)).padStart(9, "0");
  const groups = rest.match(/.{3}/g);
  while (groups.length > 1 && groups.at(-1) === "000") groups.pop();
  return `${whole}.${groups.join(" ")} s`;
}

/** Pixels and times: `x(ns)` from the left of the lanes, `time(px)` on the page's axis. */
function scaleOf({ start, end }, width) {
  const nsPerPixel = (end - start) / width;
  return {
    start,
    nsPerPixel,
    width,
    x: (ns) => (ns - start) / nsPerPixel,
    time: (px) => start + px * nsPerPixel,
  };
}
