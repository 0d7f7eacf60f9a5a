// The stages of each device, as labels for the boxes of a cluster's picture.

const MAX_LETTERS = 13; // in a box
export const PARTS_HINT = "In boxes, 0F is the forward of stage 0 without its backward, and 0B its backward without its forward.";

const groupNames = (group) => new Set(group.map(([name]) => name));

// By device name: the numbers of its stages, each with its part: "" for both passes, "F" or "B" for one of them.
export function stagesOf(model) {
  const stages = new Map();
  model.stages.forEach((stage, number) => {
    const [forward, backward] = [groupNames(stage.forward), groupNames(stage.backward)];
    for (const name of new Set([...forward, ...backward])) {
      const part = !backward.has(name) ? "F" : !forward.has(name) ? "B" : "";
      stages.set(name, [...(stages.get(name) ?? []), { number, part }]);
    }
  });
  return stages;
}

export const hasParts = (stages) => [...stages.values()].some((own) => own.some(({ part }) => part));

// By device name: the full text, and a short one for the box.
export const stageLabels = (stages) => new Map([...stages].map(([name, own]) => [name, stageLabel(own)]));

export function stageLabel(own) {
  const list = own.map(({ number, part }) => `${number}${part}`).join(", ");
  const text = `stage${own.length > 1 ? "s" : ""} ${list}`;
  if (text.length <= MAX_LETTERS) return { text, short: text };
  const short = `st. ${list}`;
  return { text, short: short.length <= MAX_LETTERS + 2 ? short : `${own.length} stages` };
}
