// Builds the page.

import { addressOf, makeApp, sane } from "./app.mjs";
import { choice, el } from "./dom.mjs";
import { clusterView } from "../cluster/view.mjs";
import { compareView } from "../views/compare.mjs";
import { decodeState } from "./url_state.mjs";
import { picked } from "../interaction/pick.mjs";
import { planView } from "../views/plan.mjs";
import { present } from "./focus.mjs";
import { tableView } from "../views/tables.mjs";
import { timelineView } from "../timeline/view.mjs";
import { summaryView } from "../views/summary.mjs";

const SECTIONS = [
  ["summary", "Summary"],
  ["timeline", "Timeline"],
  ["compare", "Compare"],
  ["plan", "Plan"],
  ["cluster", "Cluster"],
];

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const app = makeApp(data, location.hash);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (app.state.theme === "auto" ? system.matches : app.state.theme === "dark");
  const setTheme = () => {
    document.documentElement.dataset.dark = isDark() ? "1" : "0";
  };
  setTheme();
  app.listen(setTheme);

  const { section, view } = timelineView(app, isDark);
  system.addEventListener("change", () => app.update({ systemDark: system.matches }));
  document.querySelector("header").append(
    el("h1", { text: data.title }),
    el(
      "nav",
      { "aria-label": "Sections" },
      ...SECTIONS.map(([id, text]) =>
        el("button", { type: "button", text, onclick: () => document.getElementById(id).scrollIntoView() }),
      ),
      choice(
        "Theme",
        [
          ["auto", "system theme"],
          ["light", "light"],
          ["dark", "dark"],
        ],
        app.state.theme,
        (theme) => app.update({ theme }),
      ),
    ),
  );
  document
    .querySelector("main")
    .append(summaryView(app), section, compareView(app), planView(app, isDark), clusterView(app), tableView(app));

  // The address follows the state without new history entries, and the state follows the address.
  let timer = 0;
  app.listen(() => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const text = addressOf(app.state);
      try {
        history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
      } catch {
        // Viewers that embed the page forbid this; everything else works in them.
      }
    }, 120);
  });
  addEventListener("hashchange", () => {
    app.update(sane(decodeState(location.hash), app.models, app.total));
    showPicked();
  });
  const showPicked = () => {
    const hit = picked(app);
    if (!hit) return;
    section.scrollIntoView();
    requestAnimationFrame(() => present(view, hit));
  };
  view.redraw();
  requestAnimationFrame(showPicked);
  globalThis.penstockReport = { app, view };
}

start();
