// How did the reader arrange the lanes? Some are pinned to the top, some hidden, some moved.

lanes.forEach((lane, number) => (lane.id = String(number)));
groups.forEach((group, number) => (group.id = `g${number}`));

function isPinned({ id }) {
  return state.arranged.pinned.includes(id);
}

function isHidden({ id }) {
  return state.arranged.hidden.includes(id);
}

/** Lanes or groups as the reader ordered them. */
function inOrder(members) {
  const place = new Map(state.arranged.order.map((id, at) => [id, at]));
  return [...members].sort((one, other) => (place.get(one.id) ?? -1) - (place.get(other.id) ?? -1));
}

/** The lanes of a group that are below its header. */
function lanesBelow(group) {
  return inOrder(group.lanes).filter((lane) => !isPinned(lane) && !isHidden(lane));
}

function pinnedLanes() {
  const found = state.arranged.pinned.map((id) => lanes[id]);
  return found.filter((lane) => !isHidden(lane));
}

function groupsBelow(group) {
  return inOrder(groups.filter(({ parent }) => parent === group));
}

/** All groups, from the top down. */
function orderedGroups() {
  return groupsBelow(null).flatMap((group) => [group, ...groupsBelow(group)]);
}

/** Whether a group has a lane to show, or one below it has. */
function hasLanes(group) {
  return [group, ...groupsBelow(group)].some((each) => lanesBelow(each).length);
}

function groupOfLane(lane) {
  return groups.find(({ lanes: members }) => members.includes(lane));
}

/** What a lane is called where its group's title does not stand above it. */
function longTitle({ title, report }) {
  return reports.length > 1 ? `${report.name}, ${title}` : title;
}

/** What a lane or group changes places with, from the top down. */
function besides(member) {
  if (member.lanes) return groupsBelow(member.parent).filter(hasLanes);
  return isPinned(member) ? pinnedLanes() : lanesBelow(groupOfLane(member));
}

/** Put a lane or group where another one is that it changes places with. */
function moveTrack(member, to) {
  const all = member.lanes
    ? groupsBelow(member.parent)
    : inOrder(isPinned(member) ? state.arranged.pinned.map((id) => lanes[id]) : groupOfLane(member).lanes);
  const from = all.indexOf(member);
  const ids = all.map(({ id }) => id);
  ids.splice(all.indexOf(to), 0, ...ids.splice(from, 1));
  if (!member.lanes && isPinned(member)) arrange({ pinned: ids });
  else arrange({ order: [...state.arranged.order.filter((id) => !ids.includes(id)), ...ids] });
}

function togglePinned(lane) {
  const { pinned, hidden } = state.arranged;
  const without = pinned.filter((id) => id !== lane.id);
  arrange({
    pinned: isPinned(lane) ? without : [...pinned, lane.id],
    hidden: hidden.filter((id) => id !== lane.id),
  });
}

/** Hide some lanes, or show them again. */
function setHidden(some, hide) {
  const ids = some.map(({ id }) => id);
  const others = state.arranged.hidden.filter((id) => !ids.includes(id));
  arrange({ hidden: hide ? [...others, ...ids] : others });
}
