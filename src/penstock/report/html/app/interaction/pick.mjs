// What was chosen on the timeline, by a click or by the keyboard: an action, a gap, or nothing.

export function picked(app) {
  const { pick, gap } = app.state;
  const [number, place] = (pick ?? gap ?? "").split(".").map(Number);
  if (pick !== null) return { type: "action", model: app.models[number], action: place };
  return gap !== null ? { type: "gap", model: app.models[number], gap: place } : null;
}
