// The first section: what the plan is, what limits it, and what would help most.

import { choice, el, section } from "../ui/dom.mjs";
import { partOf, showBytes, showPercent, showSeconds, withUnits } from "../data/format.mjs";

export function wordsView(app) {
  const box = el("div");
  const fill = () => box.replaceChildren(...wordsContent(app.models[app.state.about], app.ghostOf.get(app.state.about)));
  app.listen((state, before) => {
    if (state.about !== before.about) fill();
  });
  fill();
  const options = app.models.map((model) => [String(model.number), model.name]);
  const chooser =
    app.models.length > 1
      ? el(
          "label",
          { class: "about" },
          el("span", { text: "Words, plan and cluster of" }),
          choice("Words, plan and cluster of", options, String(app.state.about), (value) =>
            app.update({ about: Number(value) }),
          ),
        )
      : null;
  return section(
    "summary",
    "Summary",
    app.data.mixed && el("p", { text: app.data.mixed }),
    chooser,
    box,
  );
}

// With a run goes what was predicted for it, if that is known.
function wordsContent(model, prediction = null) {
  const { figures } = model;
  const predicted = model.origin === "measured" ? ", predicted" : "";
  const helped = [model, prediction].find((about) => about?.helps.length);
  const cards = [
    ["iteration", showSeconds(model.iteration)],
    ["was predicted", prediction && showSeconds(prediction.iteration)],
    ["bubble", showPercent(figures.bubble)],
    ["rows/s", figures.rowsPerSecond === null ? null : figures.rowsPerSecond.toFixed(1)],
    [`peak memory${predicted}`, showBytes(figures.peak)],
    [`traffic${predicted}`, showBytes(figures.traffic)],
    ["over the bound", figures.gap === null ? null : showPercent(figures.gap)],
  ].filter(([, text]) => text !== null);
  return [
    el("p", { class: "lead", text: withUnits(model.lead) }),
    el(
      "dl",
      { class: "cards" },
      ...cards.map(([name, text]) => el("div", {}, el("dt", { text: name }), el("dd", { text }))),
    ),
    el(
      "div",
      { class: "columns" },
      el("div", { class: "words" }, ...model.words.map((text) => el("p", { text: withUnits(text) }))),
      helped ? helpBars(helped, helped !== model) : null,
    ),
  ];
}

// What each change would save of the iteration. Bars are of what is saved, from nothing on, as what is left looks alike.
function helpBars(model, isPrediction) {
  const most = Math.max(...model.helps.map(({ seconds }) => model.iteration - seconds));
  // A run's are those of its prediction: they are simulated.
  const total = `${showSeconds(model.iteration)}${isPrediction ? " that were predicted" : ""}`;
  const now = `What one change at a time would save of the ${total}`;
  return el(
    "figure",
    { class: "helps" },
    el("figcaption", { text: withUnits(`${now}; the longest bar is ${showSeconds(most)}`) }),
    ...model.helps.map(({ change, seconds }) => {
      const bar = el("i");
      bar.style.width = `${100 * partOf(model.iteration - seconds, most)}%`;
      return el(
        "div",
        { class: "help" },
        el("span", { text: withUnits(change) }),
        el("b", { text: `−${showPercent(1 - partOf(seconds, model.iteration))}, leaves ${showSeconds(seconds)}` }),
        el("div", { class: "load" }, bar),
      );
    }),
  );
}
