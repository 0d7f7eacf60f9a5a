"""Finding the blocks of a model: the items of its lists of modules, and the modules that are called around them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from penstock.errors import InputError
from penstock.model.blocks import Carry, call_model, is_plain_sequential
from penstock.model.tracing import intercepted


def detect(model: nn.Module, inputs: Carry) -> tuple[str, ...]:
    """The names of the blocks in the order in which forward calls them for these inputs.

    They are the items of each ModuleList or nn.Sequential that is not itself inside of such an item, and the modules
    beside these lists and beside what holds them: as far as they have parameters and are called once. All else that
    forward does goes with the block before it.
    """
    lists = _outer_lists(model)
    candidates = _candidates(model, lists)
    calls: dict[nn.Module, int] = {}

    def count(module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls[module] = calls.get(module, 0) + 1
        return call(*args, **kwargs)

    with torch.no_grad(), intercepted(candidates, count):
        call_model(model, inputs)
    found = [candidates[module] for module, times in calls.items() if times == 1 and list(module.parameters())]
    if sum(name.rpartition(".")[0] in lists for name in found) < 2:
        what = (
            f"forward does not call the items of {', '.join(lists[:3])} one after another"
            if lists
            else "it has no list of modules (an nn.ModuleList or nn.Sequential)"
        )
        raise InputError(f"the blocks of {type(model).__name__} are not plain: {what}", hint=_name_them(found))
    return tuple(found)


def _name_them(called: list[str]) -> str:
    such_as = f", such as --blocks {','.join(called)}" if len(called) > 1 else " with --blocks"
    return f"Name them in the order in which forward calls them{such_as} (in Python: blocks=[...])."


def _outer_lists(model: nn.Module) -> list[str]:
    found: list[str] = []
    for name, module in model.named_modules():
        is_list = isinstance(module, nn.ModuleList) or is_plain_sequential(module)
        if is_list and len(list(module.children())) > 1 and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    return found


def _candidates(model: nn.Module, lists: list[str]) -> dict[nn.Module, str]:
    """The items of the lists, and all modules beside a list or beside something that holds one."""
    holders = {""}
    for name in lists:
        words = name.split(".")
        holders |= {".".join(words[:depth]) for depth in range(1, len(words) + 1)}
    found: dict[nn.Module, str] = {}

    def look_into(name: str) -> None:
        for word, child in model.get_submodule(name).named_children():
            path = f"{name}.{word}" if name else word
            if path in holders or isinstance(child, nn.ModuleList | nn.ModuleDict):
                look_into(path)
            else:
                found.setdefault(child, path)

    look_into("")
    return found
