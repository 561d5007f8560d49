// Light or dark: as the system has it, until the reader chooses.

const THEME_KEY = "nsysflow-theme";

/** What was chosen; a file opened from disk may have no storage. */
function chosenTheme() {
  try {
    return localStorage.getItem(THEME_KEY);
  } catch {
    return null;
  }
}

function keepTheme(theme) {
  try {
    localStorage.setItem(THEME_KEY, theme);
  } catch {
    // no storage: the choice lasts until the page is closed
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}

/** Make the button change between both. */
function startTheme() {
  const chosen = chosenTheme();
  if (chosen === "dark" || chosen === "light") setTheme(chosen);
  const themeButton = document.getElementById("theme");
  const label = () => {
    themeButton.textContent = isDark() ? "Light" : "Dark";
  };
  label();
  themeButton.addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    keepTheme(document.documentElement.dataset.theme);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
}
