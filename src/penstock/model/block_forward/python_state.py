"""The Python state that a forward may branch on outside its blocks: plain attributes and hooks of modules and configs.

A replay does not run the Python code of forward, so it is valid only while this state is as it was in the trace.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

_PLAIN = (bool, int, float, str, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class PythonState:
    """The state of all modules outside the blocks, and of their configs, when this object was made."""

    def __init__(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        inner = {module for block in blocks for module in block.modules()}
        outer = [module for module in model.modules() if module not in inner]
        configs = {
            id(value): value
            for module in outer
            for value in module.__dict__.values()
            if not isinstance(value, (*_PLAIN, Mapping, nn.Module))
            and hasattr(value, "__dict__")
            and not callable(value)
        }
        self._attributes = [vars(item) for item in (*outer, *configs.values())]
        self._hooks = [getattr(module, name) for module in outer for name in _HOOKS]
        self._recorded = self._read()
        self._snapshots = [dict(attributes) for attributes in self._attributes]

    @property
    def has_hooks(self) -> bool:
        """Whether a module outside the blocks has hooks, which may do anything."""
        return any(self._hooks)

    def is_unchanged(self) -> bool:
        """Return whether the state is still the same."""
        return self._is_identical() or self._recorded == self._read()

    def _is_identical(self) -> bool:
        """Return whether nothing at all has changed, which is quicker to see."""
        try:
            same = all(map(operator.eq, self._attributes, self._snapshots))
        except Exception:  # the comparison of two tensors
            return False
        return same and self._recorded[1] == [len(hooks) for hooks in self._hooks]

    def _read(self) -> tuple[Any, ...]:
        plain = [
            {name: value for name, value in attributes.items() if type(value) in _PLAIN}
            for attributes in self._attributes
        ]
        return plain, [len(hooks) for hooks in self._hooks]
