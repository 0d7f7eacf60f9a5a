// The summary section: the plan, its bottleneck, and the most effective changes.

import { choice, el, section } from "../ui/dom.mjs";
import { partOf, showBytes, showPercent, showSeconds, withUnits } from "../data/format.mjs";

export function summaryView(app) {
  const box = el("div");
  const fill = () => box.replaceChildren(...summaryContent(app.models[app.state.about], app.ghostOf.get(app.state.about)));
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
          el("span", { text: "Summary, plan and cluster of" }),
          choice("Summary, plan and cluster of", options, String(app.state.about), (value) =>
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

// A run is shown with its prediction, if that is known.
function summaryContent(model, prediction = null) {
  const { figures } = model;
  const predicted = model.origin === "measured" ? ", predicted" : "";
  const improved = [model, prediction].find((about) => about?.improvements.length);
  const cards = [
    ["iteration", showRange(model)],
    ["predicted iteration", prediction && showRange(prediction)],
    ["bubble", showPercent(figures.bubble)],
    ["rows/s", figures.rowsPerSecond === null ? null : figures.rowsPerSecond.toFixed(1)],
    [`peak memory${predicted}`, showBytes(figures.peak)],
    [`traffic${predicted}`, showBytes(figures.traffic)],
    ["gap to bound", figures.gap === null ? null : showPercent(figures.gap)],
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
      el("div", { class: "sentences" }, ...model.sentences.map((text) => el("p", { text: withUnits(text) }))),
      improved ? improvementBars(improved, improved !== model) : null,
    ),
  ];
}

// The iteration time, with its predicted interval if there is one.
function showRange({ iteration, interval }) {
  const text = showSeconds(iteration);
  return interval ? `${text} (${interval.map(showSeconds).join(" to ")})` : text;
}

// The time that each change saves. The bars show the savings, because the remaining times look alike.
function improvementBars(model, isPrediction) {
  const most = Math.max(...model.improvements.map(({ seconds }) => model.iteration - seconds));
  // The changes are simulated, so those of a run are for its prediction.
  const total = `${isPrediction ? "predicted " : ""}${showSeconds(model.iteration)}`;
  const caption = `Savings by one change at a time, of the ${total}`;
  return el(
    "figure",
    { class: "improvements" },
    el("figcaption", { text: withUnits(`${caption}; the longest bar is ${showSeconds(most)}`) }),
    ...model.improvements.map(({ change, seconds }) => {
      const bar = el("i");
      bar.style.width = `${100 * partOf(model.iteration - seconds, most)}%`;
      return el(
        "div",
        { class: "improvement" },
        el("span", { text: withUnits(change) }),
        el("b", { text: `−${showPercent(1 - partOf(seconds, model.iteration))}, to ${showSeconds(seconds)}` }),
        el("div", { class: "load" }, bar),
      );
    }),
  );
}
