// Searching in sorted arrays.

// The number of values[order[low..high)] below the bound; `order` is sorted by values.
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

// The numbers that keep(number) accepts, sorted by values. They are mostly sorted already.
export function sortedBy(begin, end, values, keep) {
  const kept = [];
  let sorted = true;
  for (let number = begin; number < end; number++) {
    if (!keep(number)) continue;
    if (kept.length && values[kept[kept.length - 1]] > values[number]) sorted = false;
    kept.push(number);
  }
  if (!sorted) kept.sort((one, other) => values[one] - values[other] || one - other);
  return Int32Array.from(kept);
}
