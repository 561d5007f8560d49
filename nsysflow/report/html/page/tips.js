// Tooltips: whatever has `data-tip` shows it while the pointer or the keyboard is on it.

const TIP_SPACE = 8;

/** Listen for both on the whole page. */
function startTips() {
  const tip = make("div", { id: "tip", role: "tooltip", hidden: true, dir: "auto" });
  document.body.append(tip);
  let owner = null;
  const hide = () => {
    owner?.removeAttribute("aria-describedby");
    owner = null;
    tip.hidden = true;
  };
  const show = (event) => {
    const found = event.target.closest?.("[data-tip]");
    if (found === owner) return;
    hide();
    if (!found) return;
    owner = found;
    owner.setAttribute("aria-describedby", "tip");
    tip.textContent = found.dataset.tip;
    tip.hidden = false;
    placeTip(tip, found.getBoundingClientRect());
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("focusout", hide);
  const follow = () => {
    if (owner === document.activeElement) placeTip(tip, owner.getBoundingClientRect());
    else hide();
  };
  document.addEventListener("scroll", follow, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

/** Below its owner, or above where there is more room. */
function placeTip(tip, at) {
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.max(TIP_SPACE, Math.min(at.left, innerWidth - width - TIP_SPACE));
  const below = at.bottom + TIP_SPACE;
  const top = below + height <= innerHeight ? below : Math.max(TIP_SPACE, at.top - height - TIP_SPACE);
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
