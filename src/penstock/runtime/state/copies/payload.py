"""The contents of a copy: tensors one behind the other, and everything else pickled in front of them.

8 bytes      length of the pickled part
pickled      the value; each tensor is replaced by its place, shape and type
tensors      each at a multiple of 64 bytes
"""

import io
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LENGTH = struct.Struct("<Q")
ALIGNMENT = 64


class Payload:
    """A value, ready to be written.

    Args:
        value: Any picklable value with tensors in it. Those of an accelerator are copied to the host.
    """

    def __init__(self, value: Any) -> None:
        self._tensors: list[Tensor] = []
        self._sizes: list[int] = []
        self._end = 0
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(value)
        self._pickled = buffer.getvalue()
        self._start = _aligned(LENGTH.size + len(self._pickled))
        self.num_bytes = self._start + self._end

    def add(self, tensor: Tensor) -> tuple[int, tuple[int, ...], torch.dtype]:
        """Take a tensor, and return its place behind the pickled part."""
        offset = self._end
        self._tensors.append(tensor.detach())
        self._sizes.append(_aligned(tensor.numel() * tensor.element_size()))
        self._end += self._sizes[-1]
        return offset, tuple(tensor.shape), tensor.dtype

    def write(self, memory: memoryview) -> None:
        """Write the contents into memory of `num_bytes` bytes."""
        memory[: LENGTH.size] = LENGTH.pack(len(self._pickled))
        memory[LENGTH.size : LENGTH.size + len(self._pickled)] = self._pickled
        sources, targets, offset = [], [], self._start
        for tensor, size in zip(self._tensors, self._sizes, strict=True):
            if tensor.numel():
                flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
                targets.append(flat.view(tensor.shape))
                sources.append(tensor)
            offset += size
        _copy(targets, sources)


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, payload: Payload) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._payload = payload

    def persistent_id(self, value: Any) -> Any:
        """Replace a tensor by its place."""
        return self._payload.add(value) if isinstance(value, Tensor) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, contents: memoryview, length: int) -> None:
        super().__init__(io.BytesIO(contents[LENGTH.size : LENGTH.size + length]))
        self._contents = contents
        self._start = _aligned(LENGTH.size + length)

    def persistent_load(self, place: Any) -> Tensor:
        """Return a tensor in the memory of the contents."""
        offset, shape, dtype = place
        count = torch.Size(shape).numel()
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._contents, dtype=dtype, count=count, offset=self._start + offset).view(shape)


def read_payload(contents: memoryview) -> Any:
    """Read a value. Its tensors are in the memory of the contents."""
    (length,) = LENGTH.unpack(contents[: LENGTH.size])
    return _Unpickler(contents, length).load()


@torch.no_grad()
def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(list(targets), list(sources))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
