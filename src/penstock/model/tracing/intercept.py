"""Interception of the module calls of a model's forward."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from torch import nn
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

Handler: TypeAlias = Callable[[nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called with the module, its original call and the arguments; its result is returned to the caller."""

_HANDLER = "_penstock_handler"


@contextmanager
def intercept_calls(modules: Iterable[nn.Module], handler: Handler) -> Iterator[None]:
    """Route calls of these modules, including their hooks, to `handler` within the context.

    The class of each module is replaced by a subclass that differs in `__call__` only, so that attributes, isinstance
    and the rest of the module behave as the model's code expects.
    """
    classes = {module: type(module) for module in modules}
    try:
        for module, own in classes.items():
            module.__dict__[_HANDLER] = handler
            object.__setattr__(module, "__class__", _intercepting(own))  # type: ignore[arg-type]  # nn.Module's __setattr__ is slow
        yield
    finally:
        for module, own in classes.items():
            object.__setattr__(module, "__class__", own)
            module.__dict__.pop(_HANDLER, None)


@contextmanager
def suspend_mode(mode: TorchFunctionMode) -> Iterator[None]:
    """Suspend a function mode within the context, if it is on top of the mode stack.

    Some modules take another code path while a function mode is active. If forward has pushed its own mode, this mode
    stays active.
    """
    on_top = _get_current_function_mode() is mode  # type: ignore[no-untyped-call]
    if on_top:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if on_top:
            mode.__enter__()  # type: ignore[no-untyped-call]


@contextmanager
def suspend_all_modes() -> Iterator[None]:
    """Suspend all function modes within the context, such as those that draw random numbers."""
    modes = [_pop_mode() for _ in _get_current_function_mode_stack()]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)  # type: ignore[no-untyped-call]


@cache
def _intercepting(own: type[nn.Module]) -> type[nn.Module]:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        def call(*args: Any, **kwargs: Any) -> Any:
            return own.__call__(self, *args, **kwargs)

        return self.__dict__[_HANDLER](self, call, args, kwargs)

    return type(own.__name__, (_Quiet, own), {"__call__": __call__, "__module__": own.__module__})


class _Quiet:
    """Keeps a class from running `__init_subclass__` of the model's classes, which may register or rewrite it."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Do nothing."""
