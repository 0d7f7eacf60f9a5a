"""Outputs of modules inside of blocks that forward hooks collect, as models of transformers do.

With `output_hidden_states`, `output_attentions` or `output_router_logits`, forward hooks append tensors to lists that
the model's forward reads at its end. They are results of the block in which they are made: a block that does not run
appends what stands for them. Hooks of other kinds run where the block runs, and nowhere else.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

_MODULE = "transformers.utils.output_capturing"


class Captured(NamedTuple):
    """All results of a block: what it returned, and what its hooks appended to each list."""

    result: Any
    appended: dict[str, list[Any]]


def list_sizes() -> dict[str, int]:
    """Return the size of each list that hooks append to at this moment."""
    return {key: len(items) for key, items in _lists().items()}


def with_captured(result: Any, before: Mapping[str, int]) -> Any:
    """Return a block's result with what its hooks have appended since the lists had the sizes `before`."""
    appended = {
        key: items[before[key] :] for key, items in _lists().items() if len(items) > before.get(key, len(items))
    }
    return Captured(result, appended) if appended else result


def append_captured(whole: Any) -> Any:
    """Append what stands for the captured outputs of a block that did not run. Return what stands for its result."""
    if not isinstance(whole, Captured):
        return whole
    lists = _lists()
    for key, items in whole.appended.items():
        if key in lists:
            lists[key].extend(items)
    return whole.result


def _lists() -> dict[str, list[Any]]:
    module = sys.modules.get(_MODULE)
    collector = getattr(module, "_active_collector", None)
    collected = None if collector is None else collector.get()
    if not isinstance(collected, dict):
        return {}
    return {key: items for key, items in collected.items() if isinstance(items, list)}
