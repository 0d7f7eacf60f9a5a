"""Detection of the blocks of a model: the items of its module lists, and the modules called around them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from penstock.errors import InputError
from penstock.model.blocks import Activations, call_model, is_plain_sequential
from penstock.model.tracing import Abstraction, intercept_calls


def detect_blocks(model: nn.Module, inputs: Activations, fakes: Abstraction | None = None) -> tuple[str, ...]:
    """Return the names of the blocks in the order in which forward calls them for these inputs.

    Blocks are the items of the lists in the model's own plan for pipelines, if it has one (`pp_plan` of transformers),
    or of each outermost ModuleList or nn.Sequential, and the modules beside these lists and beside the modules that
    contain them. A ModuleDict counts as a list if there is no other one. Without any list, blocks are the children of
    the smallest module that holds all parameters. An item that is called again is another block; other modules are
    blocks if they have parameters and are called once. All other computation of forward belongs to the block before it.
    """
    lists: list[str] = []
    names: list[str] = []
    for lists in _list_choices(model):
        names = _called_blocks(model, inputs, lists, fakes)
        if sum(name.rpartition(".")[0] in lists for name in names) >= 2:
            return tuple(names)
    what = (
        f"forward does not call the items of {', '.join(name for name in lists[:3] if name)} one after another"
        if any(lists)
        else "forward calls fewer than two modules with parameters"
    )
    raise InputError(f"cannot detect the blocks of {type(model).__name__}: {what}", hint=_naming_hint(names))


def _list_choices(model: nn.Module) -> Iterable[list[str]]:
    """Yield the modules whose items may be the blocks, by preference."""
    planned = _planned_lists(model)
    if planned:
        yield planned
    yield _outer_lists(model, (nn.ModuleList,))
    yield _outer_lists(model, (nn.ModuleList, nn.ModuleDict))
    yield [_smallest_holder(model)]


def _called_blocks(model: nn.Module, inputs: Activations, lists: Sequence[str], fakes: Abstraction | None) -> list[str]:
    candidates = _candidates(model, lists)
    calls: list[nn.Module] = []
    depth = 0

    def note(module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal depth
        if not depth:
            calls.append(module)
        depth += 1
        try:
            return call(*args, **kwargs)
        finally:
            depth -= 1

    mode = nullcontext() if fakes is None else fakes.mode
    with torch.no_grad(), mode, intercept_calls(candidates, note):
        call_model(model, inputs)
    items = {module for module, name in candidates.items() if name.rpartition(".")[0] in lists}
    return [
        candidates[module]
        for module in calls
        if (module in items or calls.count(module) == 1) and next(module.parameters(), None) is not None
    ]


def _naming_hint(called: list[str]) -> str:
    example = f", for example --blocks {','.join(called)}" if len(called) > 1 else " with --blocks"
    return f"Name them in the order in which forward calls them{example} (in Python: blocks=[...])."


def _planned_lists(model: nn.Module) -> list[str]:
    """Return the lists of layers that the model names in its own plan for pipelines."""
    planned: list[str] = []
    for prefix, module in model.named_modules():
        plan = getattr(module, "pp_plan", None) or getattr(module, "_pp_plan", None)
        plan = plan or getattr(module.__dict__.get("config"), "base_model_pp_plan", None)
        for key in plan if isinstance(plan, dict) else ():
            name = f"{prefix}.{key}" if prefix else key
            child = getattr(module, key, None) if "." not in key else None
            if isinstance(child, nn.ModuleList) and name not in planned:
                planned.append(name)
    return planned


def _outer_lists(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[str]:
    lists: list[str] = []
    for name, module in model.named_modules():
        is_list = isinstance(module, kinds) or is_plain_sequential(module)
        if is_list and len(module._modules) and not any(name.startswith(f"{outer}.") for outer in lists if outer):
            lists.append(name)
    return lists


def _smallest_holder(model: nn.Module) -> str:
    """Return the innermost module that has all parameters of the model and several children with parameters."""
    name, module = "", model
    while True:
        holders = [(key, child) for key, child in module.named_children() if next(child.parameters(), None) is not None]
        if len(holders) != 1 or next(module.parameters(recurse=False), None) is not None:
            return name
        name = f"{name}.{holders[0][0]}" if name else holders[0][0]
        module = holders[0][1]


def _candidates(model: nn.Module, lists: Sequence[str]) -> dict[nn.Module, str]:
    """Return the items of the lists, and all modules beside a list or beside a module that contains one."""
    holders = {""}
    for name in lists:
        words = name.split(".") if name else []
        holders |= {".".join(words[:depth]) for depth in range(1, len(words) + 1)}
    candidates: dict[nn.Module, str] = {}

    def add_children(name: str) -> None:
        for word, child in model.get_submodule(name).named_children():
            path = f"{name}.{word}" if name else word
            if path in holders or isinstance(child, nn.ModuleList | nn.ModuleDict):
                add_children(path)
            else:
                candidates.setdefault(child, path)

    add_children("")
    return candidates
