"""What a forward saves for its backward, described so that it can be rebuilt in another process.

Parameters are not sent but named: the other side has them too. So are the casts of parameters that autocast makes.
Tensors that share memory are sent once, with their strides, and where they begin within a line of memory (64 bytes)
is kept, as kernels may add up in an order that depends on both. Small ones travel together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from penstock.runtime.stage import CAST_OF

LINE_BYTES = 64
SMALL_BYTES = 1 << 16
"""Up to this size copying costs less than another message."""

EMPTY = -1
"""Stands for the part of a tensor without elements."""


class Unshippable(Exception):  # noqa: N818
    """Something saved cannot be described; the text says why."""


class Piece(NamedTuple):
    """One tensor: of a sent part, or of a parameter."""

    part: int
    parameter: str
    offset: int
    """In elements, from the beginning of the part or of the parameter's memory."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(eq=False)
class Seen:
    """A tensor at the moment at which it was saved."""

    tensor: Tensor
    version: int
    cast_of: Tensor | None


def collecting(buffers: Iterable[Tensor]) -> tuple[list[Seen], saved_tensors_hooks]:
    """While the hooks are entered, saved tensors come into the list. Nothing can be gone back through afterwards.

    The list knows nothing of the hooks: so what is in it goes when the list does, and does not wait for Python's search
    for cycles, which may take a long time to come to memory that other ranks wait for.
    """
    seen: list[Seen] = []
    changing = {_memory(buffer) for buffer in buffers}

    def pack(tensor: Tensor) -> int:
        with torch._C.DisableTorchFunction():
            plain = tensor.detach()
            if type(plain) is Tensor and plain.layout == torch.strided and _memory(plain) in changing:
                # The next micro-batch may change it.
                plain = plain.clone()
            seen.append(Seen(plain, plain._version, _cast_of(tensor)))
            return len(seen) - 1

    return seen, saved_tensors_hooks(pack, _gone)


def _gone(_: object) -> Tensor:
    raise AssertionError("what was saved here goes elsewhere")


def _memory(tensor: Tensor) -> int:
    found: int = tensor.untyped_storage()._cdata
    return found


def _cast_of(tensor: Tensor) -> Tensor | None:
    """The parameter of which this is (a view of) what autocast made, with the same layout."""
    base = tensor._base if tensor._is_view() else tensor
    if base is None:
        return None
    source = getattr(base, CAST_OF, None)
    if source is None and base.grad_fn is not None and base.grad_fn.name() == "ToCopyBackward0":
        source = getattr(base.grad_fn.next_functions[0][0], "variable", None)
    if source is None or source.stride() != base.stride() or base.storage_offset() or not _is_dense(source):
        return None
    found: Tensor = source
    return found


def _is_dense(tensor: Tensor) -> bool:
    return tensor.storage_offset() == 0 and _end(tensor) == tensor.numel()


def _end(tensor: Tensor) -> int:
    """The number of elements from the first to behind the last in memory."""
    if not tensor.numel():
        return 0
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1


class Pieces(NamedTuple):
    """Tensors taken apart: their descriptions, and what must be sent."""

    pieces: tuple[Piece, ...]
    parts: list[Tensor]


def take_apart(seen: Sequence[Seen], parameters: Mapping[str, Tensor], batch: Iterable[Tensor]) -> Pieces:
    """Describe tensors. `batch` is what may lie anywhere in its memory, step by step: it is sent from where it begins.

    Raises `Unshippable`.
    """
    named: dict[int, list[tuple[str, Tensor]]] = {}
    for key, parameter in parameters.items():
        named.setdefault(_memory(parameter), []).append((key, parameter))
    names = {id(item): name for name, item in parameters.items()}
    loose = {_memory(item) for item in batch}
    ranges: dict[int, tuple[int, int]] = {}
    for item in seen:
        _check(item)
        tensor = item.tensor
        if tensor.numel() and item.cast_of is None and _memory(tensor) not in named:
            start = int(tensor.storage_offset()) * tensor.element_size()
            stop = start + _end(tensor) * tensor.element_size()
            start -= 0 if _memory(tensor) in loose else start % LINE_BYTES
            before = ranges.get(_memory(tensor), (start, stop))
            ranges[_memory(tensor)] = (min(before[0], start), max(before[1], stop))
    parts, places = _parts(ranges, {_memory(item.tensor): item.tensor for item in seen})
    pieces = []
    for item in seen:
        tensor, memory = item.tensor, _memory(item.tensor)
        part, name, offset = EMPTY, "", 0
        if item.cast_of is not None:
            if id(item.cast_of) not in names:
                raise Unshippable("it casts a parameter that is not its own")
            name, offset = names[id(item.cast_of)], int(tensor.storage_offset())
        elif tensor.numel() and memory in named:
            name, offset = _within(tensor, named[memory])
        elif tensor.numel():
            part, begin = places[memory]
            bytes_in = int(tensor.storage_offset()) * tensor.element_size() - ranges[memory][0] + begin
            if bytes_in % tensor.element_size():
                raise Unshippable("it saves parts of one memory as several types")
            offset = bytes_in // tensor.element_size()
        pieces.append(Piece(part, name, offset, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype))
    return Pieces(tuple(pieces), parts)


def _within(tensor: Tensor, parameters: Sequence[tuple[str, Tensor]]) -> tuple[str, int]:
    """The parameter that a tensor is a part of, and where in it. Several may lie in one memory."""
    for name, source in parameters:
        offset = int(tensor.storage_offset() - source.storage_offset())
        if tensor.dtype == source.dtype and offset >= 0 and offset + _end(tensor) <= _end(source):
            return name, offset
    raise Unshippable("it saves the memory of parameters as something else")


def _check(item: Seen) -> None:
    tensor = item.tensor
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg()
    if not plain or not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, torch.nn.Parameter):
        raise Unshippable("it saves tensors of a special kind (sparse, quantized, a subclass)")
    if tensor._version != item.version:
        raise Unshippable("it changes in place what it has saved")


def _parts(
    ranges: Mapping[int, tuple[int, int]], owners: Mapping[int, Tensor]
) -> tuple[list[Tensor], dict[int, tuple[int, int]]]:
    """The messages, and for each memory the message that it is in and where it begins there."""
    places: dict[int, tuple[int, int]] = {}
    together: list[tuple[int, Tensor]] = []
    large: list[Tensor] = []
    filled = 0
    for memory, (start, stop) in ranges.items():
        storage: Any = owners[memory].untyped_storage()
        found = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, start, (stop - start,), (1,))
        if stop - start > SMALL_BYTES:
            large.append(found)
            places[memory] = (len(large), 0)
        else:
            together.append((filled, found))
            places[memory] = (0, filled)
            filled += -(-(stop - start) // LINE_BYTES) * LINE_BYTES
    device = next((tensor.device for tensor in owners.values()), None)
    pool = torch.zeros(filled, dtype=torch.uint8, device=device)
    for begin, found in together:
        pool[begin : begin + len(found)] = found
    return [pool, *large], places


def put_together(pieces: Sequence[Piece], parts: Sequence[Tensor], parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """The tensors, on the other side."""
    return [_rebuilt(piece, parts, parameters) for piece in pieces]


def _rebuilt(piece: Piece, parts: Sequence[Tensor], parameters: Mapping[str, Tensor]) -> Tensor:
    if piece.parameter:
        source = parameters[piece.parameter].detach()
        if source.dtype != piece.dtype:
            source = source.to(piece.dtype)
        return source.as_strided(piece.size, piece.stride, source.storage_offset() + piece.offset)
    if piece.part == EMPTY:
        return torch.empty_strided(piece.size, piece.stride, dtype=piece.dtype, device=parts[0].device)
    storage: Any = parts[piece.part].untyped_storage()
    found = torch.empty(0, dtype=piece.dtype, device=storage.device)
    return found.set_(storage, piece.offset, piece.size, piece.stride)
