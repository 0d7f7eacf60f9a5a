// Finding things in sorted arrays.

// How many of values[order[low..high)] are below the bound; `order` is sorted by values.
export function lowerBound(order, values, bound, low = 0, high = order.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[order[middle]] < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function upperBound(order, values, bound, low = 0, high = order.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[order[middle]] <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The numbers that keep(number) accepts, sorted by values; mostly they are sorted already.
export function sortedBy(begin, end, values, keep) {
  const found = [];
  let sorted = true;
  for (let number = begin; number < end; number++) {
    if (!keep(number)) continue;
    if (found.length && values[found[found.length - 1]] > values[number]) sorted = false;
    found.push(number);
  }
  if (!sorted) found.sort((one, other) => values[one] - values[other] || one - other);
  return Int32Array.from(found);
}
