"""A compiled binary heap over two arrays: the smallest key first, at equal keys the smaller item."""

import numba

from penstock.arrays import Floats, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def push(keys: Floats, items: Ints, size: int, key: float, item: int) -> int:
    """Add an item; return the new size."""
    index = size
    while index > 0:
        parent = (index - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and items[parent] < item):
            break
        keys[index], items[index] = keys[parent], items[parent]
        index = parent
    keys[index], items[index] = key, item
    return size + 1


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def pop(keys: Floats, items: Ints, size: int) -> int:
    """Remove the first item, which is at index 0; return the new size."""
    size -= 1
    key, item = keys[size], items[size]
    index = 0
    while True:
        child = 2 * index + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (keys[right] < keys[child] or (keys[right] == keys[child] and items[right] < items[child])):
            child = right
        if key < keys[child] or (key == keys[child] and item < items[child]):
            break
        keys[index], items[index] = keys[child], items[child]
        index = child
    keys[index], items[index] = key, item
    return size
