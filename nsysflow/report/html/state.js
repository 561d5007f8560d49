const read = (id) => JSON.parse(document.getElementById(id).textContent);
const state = {
  about: read("about"), report: read("report"), view: null, selected: null, listeners: [],
};
document.getElementById("title").textContent = state.about.page.reports;
