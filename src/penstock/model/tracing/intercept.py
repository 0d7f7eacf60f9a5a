"""Standing between a model's forward and the modules it calls."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode

Handler: TypeAlias = Callable[[nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Gets the module, its own way of being called, and the arguments; what it returns, the caller gets."""

_HANDLER = "_penstock_handler"


@contextmanager
def intercepted(modules: Iterable[nn.Module], handler: Handler) -> Iterator[None]:
    """While this lasts, calls of these modules go to `handler`, hooks of theirs included.

    The class of each is replaced by a subclass that differs in `__call__` only, so that all else about the modules,
    their attributes and isinstance among it, stays as the model's code expects it.
    """
    classes = {module: type(module) for module in modules}
    try:
        for module, own in classes.items():
            module.__dict__[_HANDLER] = handler
            object.__setattr__(module, "__class__", _listening(own))  # type: ignore[arg-type]  # nn.Module's own way is slow
        yield
    finally:
        for module, own in classes.items():
            object.__setattr__(module, "__class__", own)
            module.__dict__.pop(_HANDLER, None)


@contextmanager
def stepped_aside(mode: TorchFunctionMode) -> Iterator[None]:
    """While this lasts, the mode that is on top hears of no torch function.

    Some modules compute in another way while anybody listens. If a mode of forward's own lies on top, ours stays.
    """
    on_top = _get_current_function_mode() is mode  # type: ignore[no-untyped-call]
    if on_top:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if on_top:
            mode.__enter__()  # type: ignore[no-untyped-call]


@cache
def _listening(own: type[nn.Module]) -> type[nn.Module]:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        def call(*args: Any, **kwargs: Any) -> Any:
            return own.__call__(self, *args, **kwargs)

        return self.__dict__[_HANDLER](self, call, args, kwargs)

    return type(own.__name__, (own,), {"__call__": __call__, "__module__": own.__module__})
