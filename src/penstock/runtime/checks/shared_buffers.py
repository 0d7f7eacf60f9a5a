"""Buffers that layers of several stages share. They must not change in training.

A constant table that all layers read is such a buffer and works. A batch norm that occurs in two stages does not: in a
single process both would update the same running statistics in turn, but each stage has its own copy.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import Block
from penstock.runtime.layout import StageView


def shared_buffers(blocks: Sequence[Block]) -> dict[str, tuple[int, ...]]:
    """Return the names of buffers that several blocks use, and the indices of these blocks."""
    holders: dict[int, dict[int, None]] = {}
    names: dict[int, str] = {}
    for number, block in enumerate(blocks):
        for name, buffer in block.buffers.items():
            holders.setdefault(id(buffer), {})[number] = None
            names.setdefault(id(buffer), name)
    return {names[key]: tuple(numbers) for key, numbers in holders.items() if len(numbers) > 1}


class BufferChanges:
    """Finds which of some buffers of a model change: by identity and version, and the first time also by values.

    `torch.nn.functional.batch_norm` writes running statistics without a new version.

    Args:
        model: The model.
        names: Names of its buffers.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        self._model = model
        self._names = tuple(names)
        self._before: dict[str, tuple[Tensor, int]] = {}
        self._values: dict[str, Tensor] | None = None
        """At the first `begin`, and until the first `changed`."""

    def begin(self) -> None:
        """Record the state of the buffers."""
        if self._values is None:
            self._values = {name: self._state(name)[0].detach().clone() for name in self._names}
        self._before = {name: self._state(name) for name in self._names}

    def changed(self) -> list[str]:
        """Return the names of the buffers that have changed since `begin`."""
        values, self._values = self._values or {}, {}
        names = []
        for name, (buffer, version) in self._before.items():
            current, current_version = self._state(name)
            is_same = current is buffer and current_version == version
            is_kept = name in values and not current.is_meta
            if not is_same or (is_kept and not torch.equal(current, values[name])):
                names.append(name)
        return names

    def _state(self, name: str) -> tuple[Tensor, int]:
        buffer = self._model.get_buffer(name)
        return buffer, buffer._version


class SharedBufferCheck:
    """Checks the shared buffers of one rank."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block], stages: Sequence[StageView]) -> None:
        # Call this before `release_unused`, which moves buffers to the meta device.
        stage_of = [number for number, view in enumerate(stages) for _ in range(view.start, view.stop)]
        shared = shared_buffers(blocks)
        names = sorted(name for name, holders in shared.items() if len({stage_of[unit] for unit in holders}) > 1)
        self._changes = BufferChanges(model, names)

    def begin(self) -> None:
        """Start an iteration: record the state of all shared buffers."""
        self._changes.begin()

    def check(self) -> None:
        """End an iteration.

        Raises:
            InputError: A shared buffer has changed.
        """
        for name in self._changes.changed():
            raise InputError(
                f"buffer {name!r} changes in training, but layers of several stages share it: each stage would "
                "continue with its own value",
                hint="Give each layer its own module, or plan all layers that share the buffer into one stage, as "
                "`penstock plan` does with a profile measured by this version.",
            )
