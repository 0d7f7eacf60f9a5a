// Which stages run where, in the boxes of the picture of a cluster.

const MOST_LETTERS = 13; // in a box
export const PART_WORDS = "In boxes, 0F is the forward alone of stage 0, and 0B its backward alone.";

const groupNames = (group) => new Set(group.map(([name]) => name));

// By the name of the device.
export function stagesOf(model) {
  const found = new Map();
  model.stages.forEach((stage, number) => {
    const [forward, backward] = [groupNames(stage.forward), groupNames(stage.backward)];
    for (const name of new Set([...forward, ...backward])) {
      const part = !backward.has(name) ? "F" : !forward.has(name) ? "B" : "";
      found.set(name, [...(found.get(name) ?? []), `${number}${part}`]);
    }
  });
  return new Map([...found].map(([name, told]) => [name, `stage${told.length > 1 ? "s" : ""} ${told.join(", ")}`]));
}

export const hasParts = (runs) => [...runs.values()].some((text) => /[FB]/.test(text));

// Shorter where it would not fit; what points at the box has it all.
export function boxWords(text) {
  if (text.length <= MOST_LETTERS) return text;
  const short = text.replace(/^stages?/, "st.");
  return short.length <= MOST_LETTERS + 2 ? short : `${text.split(",").length} stages`;
}
