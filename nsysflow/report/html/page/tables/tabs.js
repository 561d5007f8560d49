// The tables, one at a time.

/** A list of all tables, and the panel of the chosen one. `first`: which to show. */
function showTables(id, sources, { caption, first, onopen = () => {} }) {
  if (!sources.length) return null;
  const panels = new Map();
  const panel = make("div", { role: "tabpanel", id: `${id}-panel` });
  const tabs = sources.map((source) => tabOf(source, `${id}-panel`, () => open(source.name)));
  const list = make(
    "div",
    {
      role: "tablist",
      "aria-label": "Tables",
      "aria-orientation": "vertical",
      onkeydown: (event) => moveTab(event, tabs),
    },
    tabs,
  );
  function open(name) {
    const at = Math.max(
      0,
      sources.findIndex((source) => source.name === name),
    );
    const source = sources[at];
    if (!panels.has(source.name)) panels.set(source.name, tablePanel(source));
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === at));
      tab.tabIndex = index === at ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", tabs[at].id);
    panel.replaceChildren(panels.get(source.name).element);
    panels.get(source.name).show();
    onopen(source.name);
    return panels.get(source.name);
  }
  fill(id, titled("Tables", caption), make("div", { class: "tabbed" }, list, panel));
  open(first);
  return open;
}

function tabOf(source, panel, onclick) {
  const count = make("span", { class: "tab-count" }, grouped(String(source.count)));
  return button([source.title ?? source.name.replaceAll("_", " "), " ", count], onclick, {
    role: "tab",
    id: `tab-${source.name}`,
    "aria-controls": panel,
    "data-tip": source.about,
  });
}

/** Arrow keys go from tab to tab. */
function moveTab(event, tabs) {
  const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
  const now = tabs.indexOf(document.activeElement);
  const ends = { Home: 0, End: tabs.length - 1 };
  const next =
    event.key in ends
      ? ends[event.key]
      : event.key in steps
        ? (now + steps[event.key] + tabs.length) % tabs.length
        : -1;
  if (next < 0 || now < 0) return;
  event.preventDefault();
  tabs[next].focus();
  tabs[next].click();
}
