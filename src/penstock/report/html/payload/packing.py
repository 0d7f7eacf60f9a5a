"""Packing of arrays into one base64 text for a web page, as little-endian numbers."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

_WIDTHS = (("u1", 2**8), ("u2", 2**16), ("u4", 2**32))
_ALIGNMENT = 4


class Packer:
    """Packs arrays by name. `layout` has the offset, the length and the type of each of them."""

    def __init__(self) -> None:
        self.layout: dict[str, tuple[int, int, str]] = {}
        self._data = bytearray()

    def integers(self, name: str, values: npt.ArrayLike) -> None:
        """Add non-negative integers, in the narrowest type for the largest of them."""
        array = np.asarray(values)
        largest = int(array.max(initial=0))
        code = next(code for code, end in _WIDTHS if largest < end)
        self._add(name, array, code)

    def floats(self, name: str, values: npt.ArrayLike) -> None:
        """Add numbers with about seven digits."""
        self._add(name, np.asarray(values), "f4")

    def _add(self, name: str, array: npt.NDArray[Any], code: str) -> None:
        self._data += bytes(-len(self._data) % _ALIGNMENT)
        self.layout[name] = (len(self._data), len(array), code)
        self._data += array.astype(f"<{code}").tobytes()

    @property
    def text(self) -> str:
        """All arrays in base64."""
        return base64.b64encode(bytes(self._data)).decode("ascii")
