"""The state of optimizers over all ranks, under the names of parameters.

The layout is that of torch.distributed.checkpoint.state_dict: `state` by name, and `param_groups` with names for
parameters. Several optimizers are one there: their groups follow each other, so no parameter may be in two of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.errors import InputError, MismatchError

ONE_EACH = "Call pipe.optimizer alike on every rank, and let each parameter have one optimizer."


@dataclass(frozen=True)
class Described:
    """An optimizer of one rank, or of all together."""

    kind: str
    groups: tuple[tuple[dict[str, Any], tuple[str, ...]], ...]
    """Of each group the options, and the names of its parameters."""


def describe(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> Described:
    """An optimizer as this rank has it; `names` are those of the parameters that are trained here."""
    groups = []
    for group in optimizer.param_groups:
        strangers = [item for item in group["params"] if item not in names and item.numel()]
        if strangers:
            raise InputError(
                f"an optimizer has a parameter of shape {tuple(strangers[0].shape)} that the model does not train here",
                hint="Make optimizers with pipe.optimizer, for parameters of the model.",
            )
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        groups.append((options, tuple(names[item] for item in group["params"] if item in names)))
    return Described(f"{type(optimizer).__module__}.{type(optimizer).__qualname__}", tuple(groups))


def join(ranks: Sequence[Sequence[Described]], order: Mapping[str, int]) -> tuple[Described, ...]:
    """The optimizers of all ranks together; parameters in this order."""
    for rank, theirs in enumerate(ranks):
        if [(item.kind, len(item.groups)) for item in theirs] != [(item.kind, len(item.groups)) for item in ranks[0]]:
            raise MismatchError(
                f"rank {rank} has other optimizers, or other groups in them, than rank 0", hint=ONE_EACH
            )
    joined = tuple(
        Described(
            one.kind,
            tuple(
                _join_group([theirs[place].groups[number] for theirs in ranks], order)
                for number in range(len(one.groups))
            ),
        )
        for place, one in enumerate(ranks[0])
    )
    seen: set[str] = set()
    for item in joined:
        for _, names in item.groups:
            if twice := seen.intersection(names):
                name = min(twice, key=order.__getitem__)
                raise InputError(f"the parameter {name!r} is in two optimizers, or in two groups", hint=ONE_EACH)
            seen |= set(names)
    return joined


def param_groups(joined: Sequence[Described]) -> list[dict[str, Any]]:
    """All groups, as torch.distributed.checkpoint.state_dict has them."""
    return [{**options, "params": list(names)} for item in joined for options, names in item.groups]


def check_fits(kinds: Sequence[str], groups: Sequence[Mapping[str, Any]], joined: Sequence[Described]) -> None:
    """Refuse a checkpoint of other optimizers than there are."""
    here = [item.kind for item in joined]
    if list(kinds) != here:
        raise MismatchError(
            f"the checkpoint has the state of {_listed(kinds)}, but the pipeline has {_listed(here)}",
            hint="Make the same optimizers with pipe.optimizer before pipe.load, or load with optimizer=False.",
        )
    mine = [names for item in joined for _, names in item.groups]
    if len(mine) != len(groups):
        raise MismatchError(f"the checkpoint has {len(groups)} groups of parameters, the optimizers have {len(mine)}")
    for number, (names, group) in enumerate(zip(mine, groups, strict=True)):
        if differ := set(names) ^ set(group["params"]):
            name = min(differ)
            has, lacks = ("optimizer", "checkpoint") if name in names else ("checkpoint", "optimizer")
            raise MismatchError(f"the parameter {name!r} is in group {number} of the {has}, but not of the {lacks}")


def put_back(
    optimizer: torch.optim.Optimizer,
    names: Mapping[Tensor, str],
    groups: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
) -> None:
    """Give this rank's optimizer its groups' options and its parameters' state."""
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    place = {item: number for number, item in enumerate(parameters)}
    optimizer.load_state_dict(
        {
            "state": {place[item]: state[names[item]] for item in parameters if names.get(item) in state},
            "param_groups": [
                {
                    **{key: value for key, value in group.items() if key != "params"},
                    "params": [place[item] for item in mine["params"]],
                }
                for mine, group in zip(optimizer.param_groups, groups, strict=True)
            ],
        }
    )


def _join_group(
    groups: Sequence[tuple[dict[str, Any], tuple[str, ...]]], order: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    used = [item for item in groups if item[1]] or list(groups[:1])
    first, _ = used[0]
    for options, names in used:
        for key in first.keys() | options.keys():
            if not _same(first.get(key), options.get(key)):
                raise MismatchError(
                    f"the option {key!r} of the optimizer is {first.get(key)!r} for {used[0][1][0]!r}, but "
                    f"{options.get(key)!r} on another rank, for {names[0]!r}",
                    hint="Change options, and step schedulers, alike on every rank.",
                )
    return first, tuple(sorted({name for _, names in used for name in names}, key=order.__getitem__))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return bool(one == other)


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kind.rpartition(".")[2] for kind in kinds) or "no optimizer"
