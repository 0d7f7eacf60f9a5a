// The first section: what the plan is, what limits it, and what would help most.

import { choice, el, section } from "./dom.mjs";
import { partOf, showBytes, showPercent, showSeconds } from "./format.mjs";

export function wordsView(app) {
  const box = el("div");
  const fill = () => box.replaceChildren(...wordsContent(app.models[app.state.about]));
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
    chooser,
    box,
  );
}

function wordsContent(model) {
  const { figures } = model;
  const cards = [
    ["iteration", showSeconds(model.iteration)],
    ["bubble", showPercent(figures.bubble)],
    ["rows/s", figures.rowsPerSecond === null ? null : figures.rowsPerSecond.toFixed(1)],
    ["peak memory", showBytes(figures.peak)],
    ["traffic", showBytes(figures.traffic)],
    ["over the bound", figures.gap === null ? null : showPercent(figures.gap)],
  ].filter(([, text]) => text !== null);
  return [
    el("p", { class: "lead", text: model.lead }),
    el(
      "dl",
      { class: "cards" },
      ...cards.map(([name, text]) => el("div", {}, el("dt", { text: name }), el("dd", { text }))),
    ),
    el(
      "div",
      { class: "columns" },
      el("div", { class: "words" }, ...model.words.map((text) => el("p", { text }))),
      ...(model.helps.length ? [helpBars(model)] : []),
    ),
  ];
}

// What each change would make of the iteration.
function helpBars(model) {
  return el(
    "figure",
    { class: "helps" },
    el("figcaption", { text: `The iteration with one change at a time; now ${showSeconds(model.iteration)}` }),
    ...model.helps.map(({ change, seconds }) => {
      const bar = el("i");
      bar.style.width = `${100 * partOf(seconds, model.iteration)}%`;
      return el(
        "div",
        { class: "help" },
        el("span", { text: change }),
        el("b", { text: `${showSeconds(seconds)} (−${showPercent(1 - partOf(seconds, model.iteration))})` }),
        el("div", { class: "load" }, bar),
      );
    }),
  );
}
