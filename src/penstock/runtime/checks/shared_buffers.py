"""Buffers that layers of several stages share. They must not change in training.

A constant table that all layers read is such a buffer and works. A batch norm that occurs in two stages does not: in a
single process both would update the same running statistics in turn, but each stage has its own copy.
"""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import Block
from penstock.runtime.layout import StageView


class SharedBufferCheck:
    """Checks the shared buffers of one rank."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block], stages: Sequence[StageView]) -> None:
        # Call this before `release_unused`, which moves buffers to the meta device.
        named = [
            {id(buffer): name for block in blocks[view.start : view.stop] for name, buffer in block.buffers.items()}
            for view in stages
        ]
        num_stages = Counter(key for names in named for key in names)
        shared = {name for names in named for key, name in names.items() if num_stages[key] > 1}
        self._model = model
        self._names = sorted(shared)
        self._before: dict[str, tuple[Tensor, int]] = {}

    def begin(self) -> None:
        """Start an iteration: record the state of all shared buffers."""
        self._before = {name: self._state(name) for name in self._names}

    def check(self) -> None:
        """End an iteration.

        Raises:
            InputError: A shared buffer has changed.
        """
        for name, (buffer, version) in self._before.items():
            current, current_version = self._state(name)
            if current is not buffer or current_version != version:
                raise InputError(
                    f"buffer {name!r} changes in training, but layers of several stages share it: each stage would "
                    "continue with its own value",
                    hint="Give each layer its own module, or plan all layers that share the buffer into one stage.",
                )

    def _state(self, name: str) -> tuple[Tensor, int]:
        buffer = self._model.get_buffer(name)
        return buffer, buffer._version
