// Which rows does a report have? Its tables, whose columns are decoded when they are first needed.

const TIMES = new Set(["start"]);
const ROWS = new Set(["call", "prev_op", "next_op", "culprit_call", "culprit_op", "first"]);

/** One table of a report. A decoded column is a property: `table.start[row]`. Times are on the
 * page's axis. */
class Table {
  constructor(key, { n, columns }, origin) {
    this.key = key;
    this.n = n;
    this.origin = origin;
    this.columns = columns;
  }

  has(...names) {
    return names.every((name) => this[name] !== undefined);
  }

  async decode(name) {
    if (this.has(name)) return;
    const column = this.columns[name];
    const values = column
      ? await columnOf(column, TIMES.has(name) ? Float64Array : Int32Array)
      : new (ROWS.has(name) ? Int32Array : Uint8Array)(this.n); // all zeros are left out
    this[name] = TIMES.has(name) ? movedTimes(values, this.origin) : values;
  }

  /** Needs `start` and `duration`; adds `end`. */
  setEnds() {
    if (this.end) return;
    this.end = new Float64Array(this.n);
    for (let i = 0; i < this.n; i++) this.end[i] = this.start[i] + this.duration[i];
  }
}

/** A frame stays on its stack for some stretches of what its thread ran. */
function setFrameTimes(frames, stretches) {
  const { n, first, stretches: count } = frames;
  frames.start = Float64Array.from({ length: n }, (_, row) => stretches.start[first[row]]);
  frames.end = Float64Array.from({ length: n }, (_, row) => stretches.end[first[row] + count[row] - 1]);
  frames.duration = frames.end.map((end, row) => end - frames.start[row]);
}

function movedTimes(values, by) {
  const times = values instanceof Float64Array ? values : Float64Array.from(values);
  if (by) for (let i = 0; i < times.length; i++) times[i] += by;
  return times;
}

class Report {
  constructor(described, number) {
    this.number = number;
    this.name = described.name;
    this.described = described;
    this.texts = null;
    const whole = [[-Infinity, Infinity]];
    this.selection = described.selection.length ? described.selection : whole;
    this.judged = described.judged;
    this.tables = {};
    for (const [name, table] of Object.entries(described.tables)) {
      this.tables[name] = new Table(name, table, described.origin_ns);
    }
  }

  /** What a row is called; empty where names are not decoded yet. */
  nameOf(table, row) {
    const { name } = this.tables[table];
    return this.texts && name ? this.texts[name[row]] : "";
  }
}

/** Whether a time is in a judged part of a report. */
function isJudged({ judged }, time) {
  let low = 0;
  let high = judged.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (judged[middle][1] > time) high = middle;
    else low = middle + 1;
  }
  return low < judged.length && judged[low][0] <= time;
}

const reports = about.timeline.reports.map((described, number) => new Report(described, number));
