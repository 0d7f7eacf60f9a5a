"""Arrays as one text for a web page: little-endian numbers behind each other, in base64."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

_WIDTHS = (("u1", 2**8), ("u2", 2**16), ("u4", 2**32))
_ALIGNMENT = 4


class Packer:
    """Takes arrays by name; `where` then says where each of them begins, how many numbers it has, and of which type."""

    def __init__(self) -> None:
        self.where: dict[str, tuple[int, int, str]] = {}
        self._data = bytearray()

    def integers(self, name: str, values: npt.ArrayLike) -> None:
        """Whole numbers from 0 on, each as narrow as the largest of them allows."""
        array = np.asarray(values)
        largest = int(array.max(initial=0))
        code = next(code for code, end in _WIDTHS if largest < end)
        self._add(name, array, code)

    def floats(self, name: str, values: npt.ArrayLike) -> None:
        """Numbers with about seven digits."""
        self._add(name, np.asarray(values), "f4")

    def _add(self, name: str, array: npt.NDArray[Any], code: str) -> None:
        self._data += bytes(-len(self._data) % _ALIGNMENT)
        self.where[name] = (len(self._data), len(array), code)
        self._data += array.astype(f"<{code}").tobytes()

    @property
    def text(self) -> str:
        """All of it."""
        return base64.b64encode(bytes(self._data)).decode("ascii")
