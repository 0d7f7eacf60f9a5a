// Shortening of names so that they stay distinct.

import { shortened } from "./format.mjs";

const WORDS = /[^\W_]+|[\W_]/gu; // runs of letters and digits, and single other characters
const PARTS = /\d+|[^\d\W_]+|[\W_]/gu; // the same, with letters and digits separated

// For each name a text that `fits`; different names have different texts. The first of these that works: names without
// their middle; without their common beginning; only the words, then only the parts of words, in which they differ; the
// same without their middle; and numbers.
export function shortNames(names, fits) {
  if (names.every(fits)) return names;
  const rests = [withoutHead(names), differing(names, WORDS), differing(names, PARTS)];
  const cutAll = (texts) => texts.map((text) => cut(text, fits));
  const ways = [cutAll(names), ...rests.filter((texts) => texts.every(fits)), ...rests.map(cutAll)];
  return ways.find((texts) => areApart(names, texts)) ?? names.map((_, index) => `${index + 1}`);
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
  return texts.every((text, index) => {
    const other = owner.get(text) ?? names[index];
    owner.set(text, names[index]);
    return other === names[index] && text !== "";
  });
}

const split = (names, by) => names.map((name) => name.match(by) ?? []);

// Drops the words with which all names begin.
function withoutHead(names) {
  const words = split(names, WORDS);
  let num = 0;
  while (words.every((some) => num < some.length - 1 && some[num] === words[0][num])) num++;
  return words.map((some) => (num ? `…${some.slice(num).join("")}` : some.join("")));
}

// Drops the words that are the same in all names, but keeps one separator between the others.
function differing(names, by) {
  const words = split(names, by);
  if (words.some((some) => some.length !== words[0].length)) return names;
  const differs = words[0].map((word, index) => words.some((some) => some[index] !== word));
  return words.map((some) => {
    let [text, sign] = ["", ""];
    some.forEach((word, index) => {
      if (differs[index]) {
        text += (text ? sign || "." : "") + word;
        sign = "";
      } else if (/^[\W_]$/u.test(word)) sign = word;
    });
    return text;
  });
}
