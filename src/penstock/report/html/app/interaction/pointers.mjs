// Mouse, pen and touch on the timeline: move, zoom, point, select, expand.

import { SIZES, rowAt } from "../timeline/layout.mjs";
import { NONE } from "../data/timeline_model.mjs";

const CLICK_PIXELS = 5; // a pointer that moves less is a click

export function listenToPointers(view) {
  const { app, canvas } = view;
  const down = new Map();
  let moved = 0;
  let spread = 0;

  const pointIn = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const timeAt = (x) => {
    const scene = view.scene({ hit: null });
    const part = Math.min(1, Math.max(0, (x - scene.left) / (scene.width - scene.left)));
    return scene.view.from + part * (scene.view.to - scene.view.from);
  };
  // The row whose name is at a point; null beside the names.
  const namedAt = ({ x, y }) => {
    const scene = view.scene({ hit: null });
    const row = x < scene.left && y >= SIZES.axis ? rowAt(scene.layout, y - SIZES.axis + scene.scroll) : null;
    return row && (row.type === "device" || row.type === "link") ? row : null;
  };
  const plotWidth = () => {
    const scene = view.scene({ hit: null });
    return scene.width - scene.left;
  };

  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, pointIn(event));
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
    spread = spreadOf(down);
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = pointIn(event);
    const before = down.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") view.point(view.hitAt(now.x, now.y), { x: event.clientX, y: event.clientY });
      const row = namedAt(now);
      canvas.style.cursor = row?.canOpen || row?.type === "link" ? "pointer" : "";
      canvas.title = row ? fullName(row) : "";
      return;
    }
    down.set(event.pointerId, now);
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (down.size === 1 && moved > CLICK_PIXELS) {
      view.point(null);
      view.pan(-(now.x - before.x) / plotWidth());
    } else if (down.size === 2) {
      const wider = spreadOf(down);
      const [one, other] = [...down.values()];
      if (spread > 0 && wider > 0) view.zoom(wider / spread, timeAt((one.x + other.x) / 2));
      spread = wider;
    }
  });

  const lift = (event) => {
    const wasDown = down.delete(event.pointerId);
    spread = spreadOf(down);
    if (!wasDown || moved > CLICK_PIXELS || event.type === "pointercancel") return;
    const { x, y } = pointIn(event);
    if (x < view.scene({ hit: null }).left) {
      toggleLinks(namedAt({ x, y }));
      return;
    }
    const hit = view.hitAt(x, y);
    view.pick(hit);
    view.point(hit, { x: event.clientX, y: event.clientY });
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") view.point(null);
  });
  canvas.addEventListener("dblclick", (event) => view.zoom(2, timeAt(pointIn(event).x)));

  canvas.addEventListener(
    "wheel",
    (event) => {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        view.zoom(2 ** (-event.deltaY / 240), timeAt(pointIn(event).x));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        view.pan(sideways / plotWidth());
      }
    },
    { passive: false },
  );

  function toggleLinks(row) {
    if (!row?.canOpen && row?.type !== "link") return;
    const open = app.state.open.includes(row.key)
      ? app.state.open.filter((key) => key !== row.key)
      : [...app.state.open, row.key];
    app.update({ open });
  }
}

// The drawn names may be shortened.
function fullName({ type, model, device, lane }) {
  if (type === "device") return model.devices[device].name;
  return lane.target === NONE ? "all-reduce" : `${model.devices[device].name} → ${model.devices[lane.target].name}`;
}

function spreadOf(down) {
  if (down.size !== 2) return 0;
  const [one, other] = [...down.values()];
  return Math.hypot(one.x - other.x, one.y - other.y);
}
