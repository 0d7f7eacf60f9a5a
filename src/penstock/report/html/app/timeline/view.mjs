// The timeline section: a canvas that is redrawn whenever something changes.

import { CanvasSurface } from "./surface.mjs";
import { SIZES, rowAt } from "./layout.mjs";
import { el, section } from "../ui/dom.mjs";
import { drawTimeline } from "./draw.mjs";
import { hitInRow } from "../interaction/hits.mjs";
import { listenToKeys } from "../interaction/keyboard.mjs";
import { listenToPointers } from "../interaction/pointers.mjs";
import { makeScene } from "./scene.mjs";
import { makeTip } from "../ui/tooltip.mjs";
import { makeToolbar } from "../ui/toolbar.mjs";
import { picked } from "../interaction/pick.mjs";
import { shifted, zoomed } from "./scale.mjs";
import { theme } from "../ui/colours.mjs";

const HINT =
  "Drag to pan; Ctrl+wheel, pinch, or + and − to zoom; 0 shows all. Hover over an action or a gap for details. " +
  "Keyboard: arrows move, Enter selects an action, Tab the next one, Esc clears the selection.";

export function timelineView(app, isDark) {
  const canvas = el("canvas", {
    tabindex: "0",
    role: "application",
    "aria-describedby": "timeline-hint",
    "aria-label": "Timeline: a row for each device, time to the right. The same data is in a table below.",
  });
  const spacer = el("div");
  const frame = el("div", { class: "frame" }, canvas, spacer);
  const tip = makeTip();
  const view = {
    app,
    canvas,
    frame,
    tip,
    hover: null,
    hoverAt: { x: 0, y: 0 },
    numFrames: 0,
    scene: (size = {}) =>
      makeScene(app, {
        width: canvas.clientWidth,
        height: canvas.clientHeight,
        scroll: frame.scrollTop,
        dark: isDark() && !view.printing,
        hit: view.hover ?? picked(app),
        ...size,
      }),
    redraw() {
      if (!view.pending) view.pending = requestAnimationFrame(draw);
    },
    zoom(factor, at = middleOf(app.view())) {
      setView(app, zoomed(app.view(), factor, at, app.total));
    },
    pan(part) {
      const seen = app.view();
      setView(app, shifted(seen, part * (seen.to - seen.from), app.total));
    },
    hitAt(x, y) {
      const scene = view.scene({ hit: null });
      if (x < scene.left || y < SIZES.axis) return null;
      const perPixel = (scene.view.to - scene.view.from) / (scene.width - scene.left);
      const height = y - SIZES.axis + scene.scroll;
      return hitInRow(rowAt(scene.layout, height), scene.view.from + (x - scene.left) * perPixel, height, perPixel);
    },
    point(hit, at) {
      if (!hit && !view.hover) return;
      view.hover = hit;
      view.hoverAt = at ?? view.hoverAt;
      if (hit) tip.show(hit, app.partnerOf(hit.model), view.hoverAt);
      else tip.hide();
      view.redraw();
    },
    pick(hit) {
      const key = hit && `${hit.model.number}.${hit.type === "gap" ? hit.gap : hit.action}`;
      app.update({ pick: hit?.type === "action" ? key : null, gap: hit?.type === "gap" ? key : null });
    },
  };

  function draw() {
    view.pending = 0;
    const width = frame.clientWidth;
    const scene = view.scene({ width });
    const full = SIZES.axis + scene.layout.height;
    const height = Math.min(full, view.printing ? full : Math.max(380, Math.round(innerHeight * 0.72)));
    const sharpness = devicePixelRatio || 1;
    resize(canvas, width, height, sharpness);
    spacer.style.height = `${full - height}px`;
    frame.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(sharpness, 0, 0, sharpness, 0, 0);
    context.fillStyle = theme(scene.dark).back;
    context.fillRect(0, 0, width, height);
    drawTimeline(new CanvasSurface(context), { ...scene, height, scroll: frame.scrollTop });
    view.firstDrawn ??= performance.now();
    view.numFrames++;
  }

  frame.addEventListener("scroll", view.redraw);
  new ResizeObserver(view.redraw).observe(frame);
  addEventListener("beforeprint", () => {
    view.printing = true;
    draw();
  });
  addEventListener("afterprint", () => {
    view.printing = false;
    view.redraw();
  });
  listenToPointers(view);
  listenToKeys(view);
  app.listen(view.redraw);
  const part = section(
    "timeline",
    "Timeline",
    makeToolbar(view),
    frame,
    el("p", { class: "hint", id: "timeline-hint", text: HINT }),
    tip.box,
  );
  return { section: part, view };
}

function resize(canvas, width, height, sharpness) {
  const [inner, tall] = [Math.round(width * sharpness), Math.round(height * sharpness)];
  if (canvas.width !== inner || canvas.height !== tall) {
    canvas.width = inner;
    canvas.height = tall;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
}

const middleOf = ({ from, to }) => (from + to) / 2;

function setView(app, { from, to }) {
  const all = to - from >= app.total * (1 - 1e-9);
  app.update(all ? { from: null, to: null } : { from, to });
}
