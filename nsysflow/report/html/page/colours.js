// Colours of parts, and letters on them that can be read.

/** Give an element the colour of a CSS variable such as `--cause-sync`, and letters to match. */
function paint(element, variable) {
  element.style.backgroundColor = `var(${variable})`;
  element.style.color = `var(${variable.replace("--", "--on-")})`;
}
