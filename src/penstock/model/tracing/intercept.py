"""Interception of the module calls of a model's forward."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any, TypeAlias

from torch import nn
from torch._functorch import vmap
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

    The class of each module is replaced by a subclass that differs in `__call__` and `forward` only, so that
    attributes, isinstance and the rest of the module behave as the model's code expects. Code that calls a module's
    `forward` itself calls it without hooks: then the original call is that method.
    """
    classes = {module: type(module) for module in modules}
    try:
        for module, own in classes.items():
            module.__dict__[_HANDLER] = handler
            # Compiled code would contain the replaced forward.
            with_forward = module._compiled_call_impl is None and _has_plain_forward(own)
            subclass = _intercepting(own, with_forward=with_forward)  # type: ignore[arg-type]
            object.__setattr__(module, "__class__", subclass)  # nn.Module's __setattr__ is slow
        yield
    finally:
        for module, own in classes.items():
            object.__setattr__(module, "__class__", own)
            module.__dict__.pop(_HANDLER, None)


@contextmanager
def intercept_vmap(mode: TorchFunctionMode) -> Iterator[None]:
    """Pass the functions by which `torch.vmap` adds and removes its dimension to a function mode, like all others."""
    own = {name: getattr(vmap, name) for name in ("_add_batch_dim", "_remove_batch_dim")}

    def route(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if mode not in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
                return function(*args, **kwargs)
            with suspend_all_modes():
                return mode.__torch_function__(function, (), args, kwargs)  # type: ignore[no-untyped-call]

        return call

    try:
        for name, function in own.items():
            setattr(vmap, name, route(function))
        yield
    finally:
        for name, function in own.items():
            setattr(vmap, name, function)


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


def _has_plain_forward(own: type[nn.Module]) -> bool:
    """Return whether `forward` is a method of a class, unlike that of a scripted module."""
    holder = next((item for item in own.__mro__ if "forward" in item.__dict__), None)
    return holder is not None and isinstance(holder.__dict__["forward"], FunctionType)


@contextmanager
def _as_own_class(module: nn.Module, own: type[nn.Module]) -> Iterator[None]:
    """Give a module its own class within the context: its code may compare `type(self).forward`."""
    before = type(module)
    object.__setattr__(module, "__class__", own)
    try:
        yield
    finally:
        object.__setattr__(module, "__class__", before)


@cache
def _intercepting(own: type[nn.Module], *, with_forward: bool) -> type[nn.Module]:
    def run_forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _as_own_class(self, own):
            return own.forward(self, *args, **kwargs)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        def call(*args: Any, **kwargs: Any) -> Any:
            with _as_own_class(self, own):
                return own.__call__(self, *args, **kwargs)

        return self.__dict__[_HANDLER](self, call, args, kwargs)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[_HANDLER](self, MethodType(run_forward, self), args, kwargs)

    members = {"__call__": __call__, "__module__": own.__module__, **({"forward": forward} if with_forward else {})}
    return type(own.__name__, (_Quiet, own), members)


class _Quiet:
    """Keeps a class from running `__init_subclass__` of the model's classes, which may register or rewrite it."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Do nothing."""
