// How does a reader pin, hide and move lanes? By keys, by dragging a title, or in a list of all lanes.

/** The lane that the keyboard is in. */
function laneHere() {
  return surface.lane ?? currentPlace()?.row.lane ?? null;
}

function pinHere() {
  const lane = laneHere();
  if (!lane) return;
  togglePinned(lane);
  say(`${longTitle(lane)} ${isPinned(lane) ? "pinned to the top" : "no longer pinned"}`);
}

function hideHere() {
  const lane = laneHere();
  if (!lane) return;
  surface.lane = null;
  select();
  setHidden([lane], true);
  say(`${longTitle(lane)} hidden; H shows all lanes again`);
}

function showAllLanes() {
  arrange({ hidden: [] });
  say("All lanes are shown");
}

/** Put the lane here one place higher or lower. */
function moveHere(by) {
  const lane = laneHere();
  if (!lane) return;
  moveBeside(lane, by);
  const all = besides(lane);
  say(`${longTitle(lane)}, place ${all.indexOf(lane) + 1} of ${all.length}`);
}

function moveBeside(member, by) {
  const all = besides(member);
  const to = all[all.indexOf(member) + by];
  if (to) moveTrack(member, to);
}

/** Move what a title belongs to with the pointer: past another one once half of that is passed. */
function dragTitle(member, y) {
  const over = itemAt(surface.layout, inLayout(y));
  if (!over) return;
  const { lane } = over;
  if (lane && !member.lanes && isPinned(lane) !== isPinned(member)) togglePinned(member);
  const to = member.lanes ? groupOver(over.group, member) : lane;
  const all = besides(member);
  const [from, at] = [all.indexOf(member), all.indexOf(to)];
  if (from < 0 || at < 0 || from === at) return;
  const { top, height } = extentOfTrack(to);
  const passed = at > from ? inLayout(y) > top + height / 2 : inLayout(y) < top + height / 2;
  if (passed) moveTrack(member, to);
}

/** The group beside another one that a group is or is below. */
function groupOver(group, { parent }) {
  return group && group.parent !== parent ? group.parent : group;
}

/** From the top of a lane, or of a group's header, to its end. */
function extentOfTrack(member) {
  const mine = surface.layout.items.filter(
    ({ group, lane }) => lane === member || (group && (group === member || group.parent === member))
  );
  const [first, last] = [mine[0], mine.at(-1)];
  return { top: first.top, height: last.top + last.height - first.top };
}

/** Draw the lanes as they are arranged now, and list them so. */
function followArranged() {
  surface.overviewPicture = null;
  fitSurface();
  showDetails(); // hidden lanes do not count
  if (surface.list.open) fillLaneList();
}

function makeLaneList() {
  const title = make("h2", { id: "timeline-list-title" }, "Lanes");
  const close = button("Close", () => surface.list.close(), { autofocus: true });
  const all = button("Show all", showAllLanes);
  const reset = button("As at the start", () => arrange({ pinned: [], hidden: [], order: [] }));
  const table = make("table", {}, make("tbody"));
  const attributes = { id: "timeline-list", "aria-labelledby": "timeline-list-title" };
  return make("dialog", attributes, title, make("p", { class: "moves" }, close, all, reset), table);
}

/** With the focus on one of the lanes, if it is named. */
function openLaneList(lane) {
  fillLaneList();
  surface.list.showModal();
  if (lane) surface.list.querySelector(`[data-track="${lane.id}"][data-act="pin"]`).focus();
}

/** List all lanes anew; the focus stays on the button that was pressed. */
function fillLaneList() {
  const body = surface.list.querySelector("tbody");
  const { track, act } = document.activeElement.dataset;
  body.replaceChildren(
    ...orderedGroups().flatMap((group) => [listedGroup(group), ...inOrder(group.lanes).map(listedLane)])
  );
  if (track) body.querySelector(`[data-track="${track}"][data-act="${act}"]`)?.focus();
}

function listedGroup(group) {
  const mine = [group, ...groupsBelow(group)].flatMap(({ lanes: members }) => members);
  const shown = mine.some((lane) => !isHidden(lane));
  const cells = [shownBox(group, group.title, shown, mine), make("td"), moveCells(group, group.title)];
  return make("tr", { class: group.parent ? null : "group" }, cells);
}

function listedLane(lane) {
  const pressed = String(isPinned(lane));
  const title = longTitle(lane);
  const pin = button("Pin", () => togglePinned(lane), {
    "aria-pressed": pressed,
    "aria-label": `Pin ${title}`,
    "data-track": lane.id,
    "data-act": "pin",
  });
  const cells = [shownBox(lane, shortTitle(lane), !isHidden(lane), [lane]), make("td", {}, pin)];
  return make("tr", { class: "lane" }, cells, moveCells(lane, title));
}

function shownBox(member, title, checked, some) {
  const onchange = (event) => setHidden(some, !event.target.checked);
  const box = make("input", { type: "checkbox", onchange, "data-track": member.id, "data-act": "show" });
  box.checked = checked;
  return make("th", { scope: "row" }, make("label", {}, box, " ", named(title, 60)));
}

function moveCells(member, title) {
  const move = (label, words, by) =>
    button(label, () => moveBeside(member, by), {
      "aria-label": `Move ${title} ${words}`,
      "data-track": member.id,
      "data-act": words,
    });
  return make("td", {}, move("↑", "up", -1), move("↓", "down", 1));
}
