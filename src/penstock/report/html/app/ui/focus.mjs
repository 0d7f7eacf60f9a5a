// Scrolls a selected action or gap into view and shows its tooltip.

import { gapDevice, gapEnd } from "../data/gaps.mjs";
import { SIZES, rowKey, rowOf } from "../timeline/layout.mjs";
import { shifted } from "../timeline/scale.mjs";

export function present(view, hit) {
  const { app, canvas, frame } = view;
  const { model } = hit;
  const [start, end] = (
    hit.type === "gap"
      ? [model.gapStart[hit.gap], gapEnd(model, hit.gap)]
      : [model.start[hit.action], model.end[hit.action]]
  ).map((time) => time * model.unit);
  const seen = app.view();
  if (app.state.from !== null && (start < seen.from || end > seen.to)) {
    app.update(shifted(seen, (start + end) / 2 - (seen.from + seen.to) / 2, app.total));
  }
  const scene = view.scene({ hit: null });
  const row =
    hit.type === "gap"
      ? scene.layout.byKey.get(rowKey(model, gapDevice(model, hit.gap)))
      : rowOf(scene.layout, model, hit.action);
  if (!row) return;
  if (row.y < frame.scrollTop) frame.scrollTop = row.y;
  const bottom = row.y + row.height + SIZES.axis - frame.clientHeight;
  if (bottom > frame.scrollTop) frame.scrollTop = bottom;
  const box = canvas.getBoundingClientRect();
  const now = app.view();
  const part = ((start + end) / 2 - now.from) / (now.to - now.from);
  const x = scene.left + Math.min(1, Math.max(0, part)) * (scene.width - scene.left);
  view.point(hit, { x: box.left + x, y: box.top + row.barY + row.barHeight + SIZES.axis - frame.scrollTop });
}
