"""A compiled binary heap over two arrays: the smallest key first, at equal keys the smaller item."""

import numba

from penstock.arrays import Floats, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def push(keys: Floats, items: Ints, size: int, key: float, item: int) -> int:
    """Add an item; gives the new size."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and items[parent] < item):
            break
        keys[place], items[place] = keys[parent], items[parent]
        place = parent
    keys[place], items[place] = key, item
    return size + 1


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def pop(keys: Floats, items: Ints, size: int) -> int:
    """Take the first item off, which is at place 0; gives the new size."""
    size -= 1
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (keys[right] < keys[child] or (keys[right] == keys[child] and items[right] < items[child])):
            child = right
        if key < keys[child] or (key == keys[child] and item < items[child]):
            break
        keys[place], items[place] = keys[child], items[child]
        place = child
    keys[place], items[place] = key, item
    return size
