// Names cut short such that they can still be told apart.

import { shortened } from "./format.mjs";

const WORDS = /[^\W_]+|[\W_]/gu; // runs of letters and digits, single other signs
const PARTS = /\d+|[^\d\W_]+|[\W_]/gu; // and letters apart from digits

// For each name a text that `fits`, and no text twice where the names differ. Tried in this order: names with their
// middle left out; without what all begin with; only the words, then only the parts of words in which they differ; all
// those without their middle; and their places in the list.
export function shortNames(names, fits) {
  if (names.every(fits)) return names;
  const rests = [withoutHead(names), differing(names, WORDS), differing(names, PARTS)];
  const cutAll = (texts) => texts.map((text) => cut(text, fits));
  const ways = [cutAll(names), ...rests.filter((texts) => texts.every(fits)), ...rests.map(cutAll)];
  return ways.find((texts) => areApart(names, texts)) ?? names.map((_, place) => `${place + 1}`);
}

// The longest that fits, with the middle left out.
function cut(text, fits) {
  if (fits(text)) return text;
  let [low, high] = [1, [...text].length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fits(shortened(text, middle))) low = middle;
    else high = middle - 1;
  }
  return shortened(text, low);
}

function areApart(names, texts) {
  const owner = new Map();
  return texts.every((text, place) => {
    const other = owner.get(text) ?? names[place];
    owner.set(text, names[place]);
    return other === names[place] && text !== "";
  });
}

const split = (names, by) => names.map((name) => name.match(by) ?? []);

// What all names begin with is left out, in whole words.
function withoutHead(names) {
  const words = split(names, WORDS);
  let num = 0;
  while (words.every((some) => num < some.length - 1 && some[num] === words[0][num])) num++;
  return words.map((some) => (num ? `…${some.slice(num).join("")}` : some.join("")));
}

// Words that are the same in all names are left out, but for one sign between what stays.
function differing(names, by) {
  const words = split(names, by);
  if (words.some((some) => some.length !== words[0].length)) return names;
  const differs = words[0].map((word, place) => words.some((some) => some[place] !== word));
  return words.map((some) => {
    let [text, sign] = ["", ""];
    some.forEach((word, place) => {
      if (differs[place]) {
        text += (text ? sign || "." : "") + word;
        sign = "";
      } else if (/^[\W_]$/u.test(word)) sign = word;
    });
    return text;
  });
}
