"""The names of torch functions, and which of them need no data."""

from collections.abc import Callable
from typing import Any

_METADATA = frozenset(
    ("__set__", "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "type",
     "is_floating_point", "is_complex", "is_signed", "element_size", "get_device", "storage_offset", "__len__",
     "is_tensor", "is_inference", "is_conj", "is_neg", "is_same_size", "__hash__", "result_type")
)  # fmt: skip
_TENSOR_ATTRIBUTES = frozenset((".T", ".mT", ".H", ".mH", ".real", ".imag", ".data", ".grad", "._base"))


def function_name(func: Callable[..., Any]) -> str:
    """Return the name of a torch function; of an attribute such as `.T`, with a dot."""
    name: str = getattr(func, "__name__", str(func))
    return f".{getattr(func.__self__, '__name__', '')}" if name == "__get__" else name  # type: ignore[attr-defined]


def is_metadata_query(name: str) -> bool:
    """Return whether a torch function needs no data and makes no tensor, as `shape` and `size`. It is no event."""
    return name in _METADATA or (name.startswith(".") and name not in _TENSOR_ATTRIBUTES)
