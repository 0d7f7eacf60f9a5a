"""Buffers that several stages have: they may not change in training, as each stage would go on with its own.

A table that all layers read is such a buffer, and is fine. A batch norm that stands in two stages is not: in one
process both would add to the same running statistics, one after the other.
"""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import Block
from penstock.runtime.layout import StageView


class SharedBuffers:
    """Those that a rank has."""

    def __init__(self, model: nn.Module, blocks: Sequence[Block], stages: Sequence[StageView]) -> None:
        """Before ranks let go of what they do not need."""
        named = [
            {id(buffer): name for block in blocks[view.start : view.stop] for name, buffer in block.buffers.items()}
            for view in stages
        ]
        times = Counter(key for names in named for key in names)
        shared = {name for names in named for key, name in names.items() if times[key] > 1}
        self._model = model
        self._names = sorted(shared)
        self._before: dict[str, tuple[Tensor, int]] = {}

    def begin(self) -> None:
        """Before an iteration."""
        self._before = {name: self._now(name) for name in self._names}

    def check(self) -> None:
        """After an iteration."""
        for name, (buffer, version) in self._before.items():
            now, its_version = self._now(name)
            if now is not buffer or its_version != version:
                raise InputError(
                    f"the buffer {name!r} changes in training, and blocks of several stages share it: each would "
                    "go on with a value of its own",
                    hint="Give each block a module of its own, or plan so that one stage has all that share it.",
                )

    def _now(self, name: str) -> tuple[Tensor, int]:
        buffer = self._model.get_buffer(name)
        return buffer, buffer._version
