// Which rows does a reader want? Words, and comparisons such as `duration_ns>1ms`.

const COMPARISON = /^([A-Za-z_]\w*)(>=|<=|!=|=|>|<|:)(.*)$/;
const AMOUNT = /^(-?[\d.,_]+)\s*(ns|us|µs|ms|s|%|B|kB|MB|GB)?$/;
const FACTORS = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, "%": 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };

const COMPARE = {
  ">": (value, amount) => value > amount,
  "<": (value, amount) => value < amount,
  ">=": (value, amount) => value >= amount,
  "<=": (value, amount) => value <= amount,
  "=": (value, amount) => value === amount,
  "!=": (value, amount) => value !== amount,
};

/** The parts of what was typed; quotes keep spaces. */
function partsOf(typed) {
  return (typed.match(/[^\s"]*"[^"]*"|\S+/g) ?? []).map((part) => part.replaceAll('"', ""));
}

/** A number with its unit; null where it is none. */
function amountOf(text) {
  const found = AMOUNT.exec(text.trim());
  if (!found) return null;
  const value = Number(found[1].replace(/[,_]/g, ""));
  return Number.isNaN(value) ? null : value * (FACTORS[found[2]] ?? 1);
}

/** A function that says whether a row is wanted, or what is wrong with what was typed. */
function rowFilter(source, typed) {
  const tests = partsOf(typed).map((part) => partTest(source, part));
  const wrong = tests.find((test) => typeof test === "string");
  return wrong ?? ((row) => tests.every((test) => test(row)));
}

function partTest(source, part) {
  const found = COMPARISON.exec(part);
  if (!found) return anyCellHas(source, part);
  const [, name, operator, wanted] = found;
  const column = source.columnAt[name] ?? source.columnAt[`${name}_ns`] ?? source.columnAt[`${name}_pct`];
  if (column === undefined) {
    return operator === ":" ? anyCellHas(source, part) : `There is no column “${name}” here`;
  }
  if (operator === ":")
    return (row) => cellText(source, row, column).toLowerCase().includes(wanted.toLowerCase());
  return comparison(source, column, operator, wanted);
}

function comparison(source, column, operator, wanted) {
  const compare = COMPARE[operator];
  if (!source.columns[column].number) {
    if (operator !== "=" && operator !== "!=")
      return `“${source.columns[column].name}” holds words; ask for ${source.columns[column].name}=… or :…`;
    return (row) => compare(String(source.value(row, column) ?? ""), wanted);
  }
  const amount = amountOf(wanted);
  if (amount === null) return `“${wanted}” is no number`;
  return (row) => {
    const value = source.value(row, column);
    return value !== null && compare(value, amount);
  };
}

function anyCellHas(source, word) {
  const wanted = word.toLowerCase();
  return (row) =>
    source.columns.some((_, column) => {
      const value = source.value(row, column);
      return (
        value !== null &&
        (String(value).toLowerCase().includes(wanted) ||
          cellText(source, row, column).toLowerCase().includes(wanted))
      );
    });
}

/** A cell as people read it. */
function cellText(source, row, column) {
  return shownAs(source.columns[column].unit, source.value(row, column));
}
