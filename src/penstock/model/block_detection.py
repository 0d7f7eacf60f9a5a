"""Detection of the blocks of a model: the items of its module lists, and the modules called around them."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from penstock.errors import InputError
from penstock.model.blocks import Activations, call_model, is_plain_sequential
from penstock.model.tracing import Abstraction, intercept_calls


def detect_blocks(model: nn.Module, inputs: Activations, fakes: Abstraction | None = None) -> tuple[str, ...]:
    """Return the names of the blocks in the order in which forward calls them for these inputs.

    Blocks are the items of each outermost ModuleList or nn.Sequential, and the modules beside these lists and beside
    the modules that contain them, provided that they have parameters and are called once. All other computation of
    forward belongs to the block before it.
    """
    lists = _outer_lists(model)
    candidates = _candidates(model, lists)
    calls: dict[nn.Module, int] = {}

    def count(module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls[module] = calls.get(module, 0) + 1
        return call(*args, **kwargs)

    mode = nullcontext() if fakes is None else fakes.mode
    with torch.no_grad(), mode, intercept_calls(candidates, count):
        call_model(model, inputs)
    names = [candidates[module] for module, times in calls.items() if times == 1 and list(module.parameters())]
    if sum(name.rpartition(".")[0] in lists for name in names) < 2:
        what = (
            f"forward does not call the items of {', '.join(lists[:3])} one after another"
            if lists
            else "it has no nn.ModuleList or nn.Sequential"
        )
        raise InputError(f"cannot detect the blocks of {type(model).__name__}: {what}", hint=_naming_hint(names))
    return tuple(names)


def _naming_hint(called: list[str]) -> str:
    example = f", for example --blocks {','.join(called)}" if len(called) > 1 else " with --blocks"
    return f"Name them in the order in which forward calls them{example} (in Python: blocks=[...])."


def _outer_lists(model: nn.Module) -> list[str]:
    lists: list[str] = []
    for name, module in model.named_modules():
        is_list = isinstance(module, nn.ModuleList) or is_plain_sequential(module)
        if is_list and len(list(module.children())) > 1 and not any(name.startswith(f"{outer}.") for outer in lists):
            lists.append(name)
    return lists


def _candidates(model: nn.Module, lists: list[str]) -> dict[nn.Module, str]:
    """Return the items of the lists, and all modules beside a list or beside a module that contains one."""
    holders = {""}
    for name in lists:
        words = name.split(".")
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
