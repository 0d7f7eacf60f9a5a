"""The last file of `make kernels`: bounds are checked, and the tests before it have compiled every kernel.

Its name does not match `test_*.py`, so that other runs of pytest do not collect it.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import penstock


def test_bounds_are_checked() -> None:
    """With `NUMBA_BOUNDSCHECK=1`, numba raises where it would read beside the array."""

    @numba.njit  # type: ignore[misc,untyped-decorator,unused-ignore]
    def read(array: np.ndarray[tuple[int], np.dtype[np.float64]], index: int) -> float:
        return float(array[index])

    with pytest.raises(IndexError):
        read(np.zeros(3), 3)


def test_every_kernel_is_compiled() -> None:
    """A kernel without a file in the cache was not called by any test of this run."""
    kernels = list(_kernels())
    assert len(kernels) >= 30
    assert [kernel.py_func.__qualname__ for kernel in kernels if not _is_cached(kernel)] == []


def _kernels() -> Iterator[CPUDispatcher]:
    root = Path(penstock.__file__).parent
    for path in sorted(root.rglob("*kernel.py")):
        module = import_module(".".join(("penstock", *path.relative_to(root).with_suffix("").parts)))
        for value in vars(module).values():
            if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.__name__:
                yield value


def _is_cached(kernel: CPUDispatcher) -> bool:
    module, name = kernel.py_func.__module__.rsplit(".", 1)[-1], kernel.py_func.__qualname__
    return any(Path(kernel.stats.cache_path).glob(f"{module}.{name}-*.nbi"))
