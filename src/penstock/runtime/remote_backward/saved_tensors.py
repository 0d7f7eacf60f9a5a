"""Descriptions of a forward's saved tensors, from which another process can rebuild them.

Parameters are referred to by name, because the other rank has them too; so are the casts of parameters that autocast
creates. Tensors that share memory are sent once. Strides, and the offset within a cache line (64 bytes), are
preserved, because kernels may sum in an order that depends on both. Small tensors are sent together.
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
"""Up to this size, a copy costs less than another message."""

EMPTY = -1
"""The part of a tensor without elements."""


class NotTransferable(Exception):  # noqa: N818
    """A saved tensor cannot be described. The message says why."""


class TensorRef(NamedTuple):
    """A tensor as a view of a sent part, or of a parameter."""

    part: int
    parameter: str
    offset: int
    """In elements, from the start of the part or of the parameter."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(eq=False)
class SavedTensor:
    """A tensor, and its state when it was saved."""

    tensor: Tensor
    version: int
    cast_of: Tensor | None
    """The parameter that this tensor is a cast of."""


def collect_saved(buffers: Iterable[Tensor]) -> tuple[list[SavedTensor], saved_tensors_hooks]:
    """Make hooks that collect saved tensors into a list. The graph itself has no backward then.

    The list holds no reference to the hooks. Its tensors are freed with the list, without waiting for the garbage
    collector, which may take long to reach memory that other ranks wait for.

    Args:
        buffers: Buffers of the stage, which later micro-batches may change. They are copied when saved.

    Returns:
        The list, and the hooks.
    """
    saved: list[SavedTensor] = []
    buffer_memory = {_memory(buffer) for buffer in buffers}

    def pack(tensor: Tensor) -> int:
        with torch._C.DisableTorchFunction():
            plain = tensor.detach()
            if type(plain) is Tensor and plain.layout == torch.strided and _memory(plain) in buffer_memory:
                plain = plain.clone()
            saved.append(SavedTensor(plain, plain._version, _cast_of(tensor)))
            return len(saved) - 1

    return saved, saved_tensors_hooks(pack, _refuse_backward)


def _refuse_backward(_: object) -> Tensor:
    raise AssertionError("the backward of this graph runs on another rank")


def _memory(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _cast_of(tensor: Tensor) -> Tensor | None:
    """The parameter that this tensor is (a view of) an autocast copy of, if both have the same layout."""
    base = tensor._base if tensor._is_view() else tensor
    if base is None:
        return None
    source = getattr(base, CAST_OF, None)
    if source is None and base.grad_fn is not None and base.grad_fn.name() == "ToCopyBackward0":
        source = getattr(base.grad_fn.next_functions[0][0], "variable", None)
    if source is None or source.stride() != base.stride() or base.storage_offset() or not _is_dense(source):
        return None
    parameter: Tensor = source
    return parameter


def _is_dense(tensor: Tensor) -> bool:
    return tensor.storage_offset() == 0 and _end(tensor) == tensor.numel()


def _end(tensor: Tensor) -> int:
    """The number of elements between the first and the last one in memory, both included."""
    if not tensor.numel():
        return 0
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1


class Description(NamedTuple):
    """Descriptions of tensors, and the parts to send."""

    refs: tuple[TensorRef, ...]
    parts: list[Tensor]


def describe_saved(
    saved: Sequence[SavedTensor], parameters: Mapping[str, Tensor], batch: Iterable[Tensor]
) -> Description:
    """Describe saved tensors.

    Args:
        saved: The tensors.
        parameters: The parameters of the stage, by name.
        batch: The tensors of the batch. Their alignment differs from step to step, so it is not preserved.

    Raises:
        NotTransferable: A tensor cannot be described.
    """
    parameter_memory: dict[int, list[tuple[str, Tensor]]] = {}
    for key, parameter in parameters.items():
        parameter_memory.setdefault(_memory(parameter), []).append((key, parameter))
    names = {id(item): name for name, item in parameters.items()}
    unaligned = {_memory(item) for item in batch}
    ranges: dict[int, tuple[int, int]] = {}
    for item in saved:
        _check(item)
        tensor = item.tensor
        if tensor.numel() and item.cast_of is None and _memory(tensor) not in parameter_memory:
            start = int(tensor.storage_offset()) * tensor.element_size()
            stop = start + _end(tensor) * tensor.element_size()
            start -= 0 if _memory(tensor) in unaligned else start % LINE_BYTES
            before = ranges.get(_memory(tensor), (start, stop))
            ranges[_memory(tensor)] = (min(before[0], start), max(before[1], stop))
    parts, locations = _parts(ranges, {_memory(item.tensor): item.tensor for item in saved})
    refs = []
    for item in saved:
        tensor, memory = item.tensor, _memory(item.tensor)
        part, name, offset = EMPTY, "", 0
        if item.cast_of is not None:
            if id(item.cast_of) not in names:
                raise NotTransferable("it casts a parameter of another stage")
            name, offset = names[id(item.cast_of)], int(tensor.storage_offset())
        elif tensor.numel() and memory in parameter_memory:
            name, offset = _within(tensor, parameter_memory[memory])
        elif tensor.numel():
            part, begin = locations[memory]
            byte_offset = int(tensor.storage_offset()) * tensor.element_size() - ranges[memory][0] + begin
            if byte_offset % tensor.element_size():
                raise NotTransferable("it saves parts of one storage with different types")
            offset = byte_offset // tensor.element_size()
        refs.append(TensorRef(part, name, offset, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype))
    return Description(tuple(refs), parts)


def _within(tensor: Tensor, parameters: Sequence[tuple[str, Tensor]]) -> tuple[str, int]:
    """The parameter that a tensor is a view of, and the offset in it. Several parameters may share a storage."""
    for name, source in parameters:
        offset = int(tensor.storage_offset() - source.storage_offset())
        if tensor.dtype == source.dtype and offset >= 0 and offset + _end(tensor) <= _end(source):
            return name, offset
    raise NotTransferable("it saves the storage of parameters with another type or range")


def _check(item: SavedTensor) -> None:
    tensor = item.tensor
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg()
    if not plain or not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, torch.nn.Parameter):
        raise NotTransferable("it saves sparse or quantized tensors, or a tensor subclass")
    if tensor._version != item.version:
        raise NotTransferable("it changes saved tensors in place")


def _parts(
    ranges: Mapping[int, tuple[int, int]], owners: Mapping[int, Tensor]
) -> tuple[list[Tensor], dict[int, tuple[int, int]]]:
    """The parts to send, and for each storage the index of its part and its offset there."""
    locations: dict[int, tuple[int, int]] = {}
    small: list[tuple[int, Tensor]] = []
    large: list[Tensor] = []
    num_bytes = 0
    for memory, (start, stop) in ranges.items():
        storage: Any = owners[memory].untyped_storage()
        view = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, start, (stop - start,), (1,))
        if stop - start > SMALL_BYTES:
            large.append(view)
            locations[memory] = (len(large), 0)
        else:
            small.append((num_bytes, view))
            locations[memory] = (0, num_bytes)
            num_bytes += -(-(stop - start) // LINE_BYTES) * LINE_BYTES
    device = next((tensor.device for tensor in owners.values()), None)
    pool = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    for begin, view in small:
        pool[begin : begin + len(view)] = view
    return [pool, *large], locations


def rebuild_saved(refs: Sequence[TensorRef], parts: Sequence[Tensor], parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """Rebuild tensors from their descriptions and the received parts."""
    return [_rebuild(ref, parts, parameters) for ref in refs]


def _rebuild(ref: TensorRef, parts: Sequence[Tensor], parameters: Mapping[str, Tensor]) -> Tensor:
    if ref.parameter:
        source = parameters[ref.parameter].detach()
        if source.dtype != ref.dtype:
            source = source.to(ref.dtype)
        return source.as_strided(ref.size, ref.stride, source.storage_offset() + ref.offset)
    if ref.part == EMPTY:
        return torch.empty_strided(ref.size, ref.stride, dtype=ref.dtype, device=parts[0].device)
    storage: Any = parts[ref.part].untyped_storage()
    tensor = torch.empty(0, dtype=ref.dtype, device=storage.device)
    return tensor.set_(storage, ref.offset, ref.size, ref.stride)
