// Numbers as people read them, letter for letter as nsysflow/base/units.py writes them.

const NS_UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
  [1, "ns"],
];
const BYTE_UNITS = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];
const FLOP_UNITS = [
  [1e15, "PFLOP"],
  [1e12, "TFLOP"],
  [1e9, "GFLOP"],
  [1e6, "MFLOP"],
  [1e3, "kFLOP"],
  [1, "FLOP"],
];

/** The nearest whole number; of two the even one, as Python rounds. */
function rounded(value) {
  const down = Math.floor(value);
  const rest = value - down;
  if (rest !== 0.5) return rest < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
}

/** With 0 to 2 decimals. Of two equally near ones the even one, as Python writes it. */
function fixed(value, decimals) {
  const eighths = Math.abs(value) * 8; // a tie at two decimals or fewer is a multiple of 1/8
  const longer = value.toFixed(decimals + 1);
  const tie = Number.isInteger(eighths) && longer.endsWith("5") && Number(longer) === value;
  if (!tie) return value.toFixed(decimals);
  const cut = longer.slice(0, -1).replace(/\.$/, "");
  return "02468".includes(cut.at(-1)) ? cut : value.toFixed(decimals);
}

/** With a comma between thousands. */
function grouped(text) {
  const [whole, ...rest] = text.split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}

/** Three significant digits, never in powers of ten. */
function significant(value) {
  const size = Math.abs(value);
  if (size >= 999.5) return grouped(fixed(value, 0));
  if (size >= 99.95) return fixed(value, 0);
  return size >= 9.995 ? fixed(value, 1) : fixed(value, 2);
}

function scaled(value, units) {
  if (value === 0) return "0";
  for (const [unit, name] of units.slice(0, -1)) {
    if (Math.abs(value) >= 0.9995 * unit) return `${significant(value / unit)} ${name}`;
  }
  return `${Math.floor(value)} ${units.at(-1)[1]}`;
}

function wholePercent(value) {
  return value >= 99.5 && value < 100 ? ">99 %" : `${fixed(value, 0)} %`;
}

/** What a figure shows, by what it counts. Nothing for what was not measured. */
const UNITS = {
  duration: (ns) => scaled(ns, NS_UNITS),
  signed: (ns) => (ns > 0 ? `+${scaled(ns, NS_UNITS)}` : scaled(ns, NS_UNITS)),
  size: (count) => scaled(count, BYTE_UNITS),
  bytes_per_s: (count) => `${scaled(rounded(count), BYTE_UNITS)}/s`,
  flops: (count) => scaled(rounded(count), FLOP_UNITS),
  flops_per_s: (count) => `${scaled(rounded(count), FLOP_UNITS)}/s`,
  instant: (ns) => `${fixed6(ns)} s`,
  count: (value) => grouped(String(value)),
  number: significant,
  times: (count) => (Math.abs(count - rounded(count)) < 0.005 ? fixed(count, 0) : significant(count)),
  percent(value) {
    if (value > 0 && value < 0.05) return "<0.1 %";
    return value > 0 && value < 9.95 ? `${fixed(value, 1)} %` : wholePercent(value);
  },
};

/** Nanoseconds as seconds with six decimals. */
function fixed6(ns) {
  return (ns / 1e9).toFixed(6);
}

/** A value as text, by what it counts; as it is where that is unknown. */
function shownAs(unit, value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return UNITS[unit] ? UNITS[unit](value) : String(value);
}

/** A part as a percentage of a whole; nothing where there is no whole. */
function shareOf(part, whole) {
  return whole ? UNITS.percent((100 * part) / whole) : "";
}
