// Colours of parts, and letters on them that can be read.

/** The lightness of a colour such as `#3f469b`, from 0 to 1 (WCAG 2.2, relative luminance). */
function luminance(hex) {
  const channels = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  const [red, green, blue] = channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const AS_DARK_AS_LIGHT = 0.179; // black and white have the same contrast here

/** Give an element the colour of a CSS variable, and letters that contrast with it. */
function paint(element, variable) {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  element.style.backgroundColor = `var(${variable})`;
  element.style.color = luminance(colour) > AS_DARK_AS_LIGHT ? "#000" : "#fff";
}
