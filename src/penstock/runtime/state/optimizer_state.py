"""The state of optimizers over all ranks, by parameter name.

The layout is that of torch.distributed.checkpoint.state_dict: `state` by name, and `param_groups` with names as
parameters. The groups of several optimizers are concatenated, so no parameter may be in two of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.errors import InputError, MismatchError

ONE_EACH = "Call pipe.optimizer in the same way on every rank, with each parameter in one optimizer only."


@dataclass(frozen=True)
class OptimizerLayout:
    """Class, groups and parameter names of an optimizer, on one rank or merged over all ranks."""

    kind: str
    groups: tuple[tuple[dict[str, Any], tuple[str, ...]], ...]
    """For each group its options, and the names of its parameters."""


def describe_optimizer(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> OptimizerLayout:
    """Describe an optimizer of this rank. `names` are those of the parameters that this rank trains."""
    groups = []
    for group in optimizer.param_groups:
        unknown = [item for item in group["params"] if item not in names and item.numel()]
        if unknown:
            raise InputError(
                f"an optimizer has a parameter of shape {tuple(unknown[0].shape)}, which this rank does not train",
                hint="Create optimizers with pipe.optimizer, for parameters of the model.",
            )
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        groups.append((options, tuple(names[item] for item in group["params"] if item in names)))
    return OptimizerLayout(f"{type(optimizer).__module__}.{type(optimizer).__qualname__}", tuple(groups))


def merge_layouts(ranks: Sequence[Sequence[OptimizerLayout]], order: Mapping[str, int]) -> tuple[OptimizerLayout, ...]:
    """Merge the optimizers of all ranks. Parameters are sorted in this order.

    Raises:
        MismatchError: Ranks have different optimizers, groups or options.
        InputError: A parameter is in two groups.
    """
    for rank, layouts in enumerate(ranks):
        if [(item.kind, len(item.groups)) for item in layouts] != [(item.kind, len(item.groups)) for item in ranks[0]]:
            raise MismatchError(
                f"rank 0 and rank {rank} disagree on the optimizers or their number of parameter groups", hint=ONE_EACH
            )
    merged = tuple(
        OptimizerLayout(
            first.kind,
            tuple(
                _merge_group([layouts[index].groups[group] for layouts in ranks], order)
                for group in range(len(first.groups))
            ),
        )
        for index, first in enumerate(ranks[0])
    )
    seen: set[str] = set()
    for item in merged:
        for _, names in item.groups:
            if twice := seen.intersection(names):
                name = min(twice, key=order.__getitem__)
                raise InputError(f"parameter {name!r} is in two optimizers or in two groups", hint=ONE_EACH)
            seen |= set(names)
    return merged


def param_groups(merged: Sequence[OptimizerLayout]) -> list[dict[str, Any]]:
    """All groups, in the format of torch.distributed.checkpoint.state_dict."""
    return [{**options, "params": list(names)} for item in merged for options, names in item.groups]


def check_fits(kinds: Sequence[str], groups: Sequence[Mapping[str, Any]], merged: Sequence[OptimizerLayout]) -> None:
    """Check that a checkpoint fits the optimizers.

    Args:
        kinds: Classes of the optimizers in the checkpoint.
        groups: Parameter groups in the checkpoint.
        merged: The optimizers of all ranks.

    Raises:
        MismatchError: Optimizers, number of groups or parameters differ.
    """
    current = [item.kind for item in merged]
    if list(kinds) != current:
        raise MismatchError(
            f"the checkpoint has the state of {_list_kinds(kinds)}, but the pipeline has {_list_kinds(current)}",
            hint="Create the same optimizers with pipe.optimizer before pipe.load, or load with optimizer=False.",
        )
    group_names = [names for item in merged for _, names in item.groups]
    if len(group_names) != len(groups):
        raise MismatchError(
            f"number of parameter groups in the checkpoint ({len(groups)}) must equal that of the optimizers "
            f"({len(group_names)})",
            hint="Create the optimizers with the same groups, or load with optimizer=False.",
        )
    for number, (names, group) in enumerate(zip(group_names, groups, strict=True)):
        if differ := set(names) ^ set(group["params"]):
            name = min(differ)
            has, lacks = ("optimizer", "checkpoint") if name in names else ("checkpoint", "optimizer")
            raise MismatchError(
                f"parameter {name!r} is in group {number} of the {has}, but not of the {lacks}",
                hint="Create the optimizers with the same groups, or load with optimizer=False.",
            )


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[Tensor, str],
    groups: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
) -> None:
    """Restore the group options and the parameter state of an optimizer of this rank."""
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    index = {item: number for number, item in enumerate(parameters)}
    optimizer.load_state_dict(
        {
            "state": {index[item]: state[names[item]] for item in parameters if names.get(item) in state},
            "param_groups": [
                {
                    **{key: value for key, value in group.items() if key != "params"},
                    "params": [index[item] for item in own["params"]],
                }
                for own, group in zip(optimizer.param_groups, groups, strict=True)
            ],
        }
    )


def _merge_group(
    groups: Sequence[tuple[dict[str, Any], tuple[str, ...]]], order: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    used = [item for item in groups if item[1]] or list(groups[:1])
    first, _ = used[0]
    for options, names in used:
        for key in first.keys() | options.keys():
            if not _is_same(first.get(key), options.get(key)):
                raise MismatchError(
                    f"optimizer option {key!r} is {first.get(key)!r} for {used[0][1][0]!r}, but {options.get(key)!r} "
                    f"for {names[0]!r} on another rank",
                    hint="Change options and step schedulers in the same way on every rank.",
                )
    return first, tuple(sorted({name for _, names in used for name in names}, key=order.__getitem__))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return bool(one == other)


def _list_kinds(kinds: Sequence[str]) -> str:
    return ", ".join(kind.rpartition(".")[2] for kind in kinds) or "no optimizer"
