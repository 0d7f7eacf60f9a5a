// The selection on the timeline: an action, a gap, or nothing.

export function picked(app) {
  const { pick, gap } = app.state;
  const [number, index] = (pick ?? gap ?? "").split(".").map(Number);
  if (pick !== null) return { type: "action", model: app.models[number], action: index };
  return gap !== null ? { type: "gap", model: app.models[number], gap: index } : null;
}
