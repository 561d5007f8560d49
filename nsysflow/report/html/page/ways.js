// Links from the head to the sections that are shown.

/** A link for each section but the first, which is in sight anyway. */
function showWays() {
  const [, ...sections] = document.querySelectorAll("main > section[id]:not([hidden])");
  const links = sections.map((section) =>
    make("a", { href: `#${section.id}`, onclick: goToSection }, section.getAttribute("aria-label")),
  );
  document.querySelector("nav").replaceChildren(...links);
}

/** Without changing the address, which says what the timeline shows. */
function goToSection(event) {
  event.preventDefault();
  document.querySelector(event.target.getAttribute("href")).scrollIntoView();
}
