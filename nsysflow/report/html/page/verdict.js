// What holds the GPUs back, and what was recorded.

const FIRST_REMARKS = 2; // the first finding and the timeline shall be in sight, too

/** Title, facts and verdict of the page. */
function showVerdict(data) {
  document.getElementById("title").replaceChildren(named(data.reports, 80));
  document
    .getElementById("facts")
    .replaceChildren(
      ...[...data.facts, data.selection && `only ${data.selection}`]
        .filter(Boolean)
        .map((fact) => make("li", {}, named(fact))),
    );
  fill(
    "verdict",
    make("h2", { class: "unseen" }, "Verdict"),
    data.headlines
      .map(({ text, advice, valid }) => [
        make("p", { class: headlineClass(data, valid) }, said(text)),
        advice && make("p", { class: "next" }, make("strong", {}, "Next: "), said(advice)),
      ])
      .flat(),
    data.steps && make("p", { class: "steps-sentence" }, said(data.steps)),
    remarks([...data.remarks, ...data.sentences], FIRST_REMARKS),
  );
  const notes = document.getElementById("notes");
  if (data.notes.length)
    notes.replaceChildren(titled("Notes", "What to know about the recording"), remarks(data.notes));
}

/** Of several headlines each begins with the name of a GPU, whose letters stay as they are. */
function headlineClass({ headlines }, valid) {
  return ["headline", headlines.length === 1 && "alone", !valid && "invalid"].filter(Boolean).join(" ");
}

/** Sentences as a list; nothing without any. After the first few the others are folded. */
function remarks(sentences, shown = Infinity) {
  if (!sentences.length) return null;
  const list = (some) =>
    make(
      "ul",
      { class: "remarks" },
      some.map((each) => make("li", {}, said(each))),
    );
  if (sentences.length <= shown + 1) return list(sentences);
  const more = `${sentences.length - shown} more remarks`;
  return [
    list(sentences.slice(0, shown)),
    make("details", { class: "more" }, make("summary", {}, more), list(sentences.slice(shown))),
  ];
}
