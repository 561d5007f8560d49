// In which colours is the timeline drawn? Those of the page's style sheet, as packed pixels and CSS.

const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });

/** [red, green, blue] of any CSS colour. */
function rgbOf(css) {
  probe.fillStyle = "#888";
  probe.fillStyle = css;
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data.subarray(0, 3)];
}

function mixedColour([r, g, b], [r2, g2, b2], share) {
  const of = (a, z) => Math.round(a + (z - a) * share);
  return [of(r, r2), of(g, g2), of(b, b2)];
}

/** As ImageData holds it on a little-endian machine. */
function packedColour([r, g, b]) {
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

function cssOf([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/** How light a colour looks, 0 to 1. */
function lightness([r, g, b]) {
  return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
}

/** One colour of slices: `shades` tell neighbours of different names apart, `faded` is for what a
 * search did not find, `ink` for the label inside. */
function toneOf(rgb, background, text) {
  const shade = (share) => {
    const towards = share < 0 ? background : text;
    return packedColour(mixedColour(rgb, towards, Math.abs(share)));
  };
  return {
    css: cssOf(rgb),
    full: packedColour(rgb),
    shades: [0, -0.13, 0.1, -0.24].map(shade),
    faded: packedColour(mixedColour(rgb, background, 0.78)),
    ink: lightness(rgb) > 0.55 ? "#111" : "#fff",
  };
}

/** The colours of CSS variables now, [red, green, blue] each. An element resolves `light-dark()`. */
function coloursNow(names) {
  const element = make("i", { hidden: true });
  surface.lanesBox.append(element);
  const found = names.map((name) => {
    element.style.color = `var(${name})`;
    return rgbOf(getComputedStyle(element).color);
  });
  element.remove();
  return found;
}

const LEAST_CONTRAST = 0.2; // of lightness, so that a bar of one pixel is seen on its ground

/** A colour that is too near to the background, moved towards the text. */
function lifted(rgb, background, text) {
  const apart = (colour) => Math.abs(lightness(colour) - lightness(background));
  const shares = [0, 0.1, 0.2, 0.3, 0.4];
  const share = shares.find((each) => apart(mixedColour(rgb, text, each)) >= LEAST_CONTRAST);
  return mixedColour(rgb, text, share ?? shares.at(-1));
}

/** Pale on a light page, dark on a dark one: what has no class stays in the background. */
function calmed(rgb, background) {
  if (lightness(background) > 0.5) return rgb;
  const mean = (rgb[0] + rgb[1] + rgb[2]) / 3;
  return rgb.map((part) => Math.round(mean * 0.42 + (part - mean) * 1.4));
}

/** All colours of the timeline; read again when the theme changes. */
function readTheme() {
  const [background, text, accent, area] = coloursNow(["--card", "--ink", "--accent", "--range-0"]);
  const seen = (rgb) => toneOf(lifted(rgb, background, text), background, text);
  const tones = (names) => coloursNow(names).map(seen);
  const calm = (rgb) => toneOf(calmed(rgb, background), background, text);
  const towards = (share) => mixedColour(background, text, share);
  const shades = coloursNow(SHADE_COLOURS).map((rgb) => calm(rgb));
  const stack_frames = [...shades, ...tones(["--own"])];
  return {
    background: cssOf(background),
    text: cssOf(text),
    muted: cssOf(towards(0.65)),
    line: cssOf(towards(0.14)),
    strong: cssOf(accent),
    ground: packedColour(background),
    header: packedColour(towards(0.06)),
    outside: packedColour(towards(0.05)),
    accent: packedColour(accent),
    counter: calm(mixedColour(area, text, 0.2)),
    tones: {
      ...Object.fromEntries(Object.entries(COLOURS).map(([key, names]) => [key, tones(names)])),
      stack_frames,
    },
    shades,
    font: getComputedStyle(surface.lanesBox).fontFamily,
  };
}

function tonesOf(theme, table) {
  return theme.tones[table] ?? theme.shades;
}
