// The tooltip of an action or a gap: beside the pointer, or at the bottom of a narrow window.

import { actionLines, actionTitle } from "../data/action_text.mjs";
import { el } from "./dom.mjs";
import { showSeconds } from "../data/format.mjs";
import { gapText } from "../data/gaps.mjs";

const NARROW = 640;

export function makeTip() {
  const box = el("div", { class: "tip", role: "status", "aria-live": "polite", hidden: true });
  return {
    box,
    show(hit, partner, at) {
      box.replaceChildren(...(hit.type === "gap" ? gapContent(hit) : actionContent(hit, partner)));
      box.hidden = false;
      moveTo(box, at);
    },
    hide() {
      box.hidden = true;
    },
  };
}

function actionContent({ model, action }, partner) {
  return [
    el("strong", { text: actionTitle(model, action) }),
    el(
      "dl",
      {},
      ...actionLines(model, action, partner).flatMap(([name, text]) => [el("dt", { text: name }), el("dd", { text })]),
    ),
  ];
}

function gapContent({ model, gap }) {
  const { title, reason, lines } = gapText(model, gap);
  const entries = lines.flatMap(({ seconds, text }) => [
    el("dt", { text: showSeconds(seconds) }),
    el("dd", { text }),
  ]);
  return [
    el("strong", { text: title }),
    reason ? el("p", { text: reason }) : null,
    entries.length ? el("dl", { class: "parts" }, ...entries) : null,
  ].filter((part) => part !== null);
}

function moveTo(box, { x, y }) {
  const docked = innerWidth < NARROW;
  box.classList.toggle("docked", docked);
  if (docked) {
    box.style.left = box.style.top = "";
    return;
  }
  const { offsetWidth: width, offsetHeight: height } = box;
  const left = x + 18 + width < innerWidth ? x + 18 : Math.max(8, x - width - 18);
  const top = y + 18 + height < innerHeight ? y + 18 : Math.max(8, y - height - 14);
  box.style.left = `${left}px`;
  box.style.top = `${top}px`;
}
