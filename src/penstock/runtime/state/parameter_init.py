"""One module fills its own tensors, watched: what it fills, and that it fills nothing of other modules.

A rank calls only those modules that hold something of its own. If one of them filled tensors of another module, the
values of these would depend on where they are.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.errors import InputError


def storage_of(tensor: Tensor) -> int:
    """The same number for all views of the same memory."""
    return int(tensor.untyped_storage()._cdata)


class _Foreign(Exception):  # noqa: N818
    """Something of another module is written to."""


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which of a module's tensors are written to; stops at those of other modules."""

    def __init__(self, own: Mapping[int, str], everything: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.own = own
        self.everything = everything
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, Tensor):
                    self._note(storage_of(tensor))
        return func(*args, **kwargs)

    def _note(self, storage: int) -> None:
        if storage in self.own:
            self.names.add(self.own[storage])
        elif storage in self.everything:
            raise _Foreign(self.everything[storage])


class Filling:
    """A module with tensors that were on the meta device and have been put on a real one, without values."""

    def __init__(
        self, module: nn.Module, path: str, names: Mapping[str, Tensor], everything: Mapping[int, str]
    ) -> None:
        self._module = module
        self._path = path
        self._names = tuple(names)
        self._everything = everything

    def run(self, reset: Callable[[], object]) -> set[str]:
        """The names of what was filled."""
        module = self._module
        tensors = {**module._parameters, **module._buffers}
        before = {name: item for name, item in tensors.items() if item is not None}
        writes = _Writes({storage_of(item): name for name, item in before.items()}, self._everything)
        try:
            with writes:
                reset()
        except _Foreign as foreign:
            raise self._refused(
                f"also fills {foreign.args[0]} of another module: ranks that do not have both would get other values"
            ) from None
        except InputError:
            raise
        except Exception as error:
            raise self._refused(f"fails on it: {type(error).__name__}: {error}") from error
        found = writes.names & set(self._names)
        for name in self._names:
            if name in module._parameters and module._parameters[name] is not before[name]:
                raise self._refused(f"puts another parameter in the place of {name!r}")
            now = module._buffers.get(name)
            if now is not None and now is not before[name]:
                # A buffer may be made anew.
                module._buffers[name] = now.to(before[name].device, before[name].dtype)
                found.add(name)
        return found

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"the model is on the meta device, and what gives {self._path or 'the model'!r} "
            f"({type(self._module).__name__}) its values {what}",
            hint="A module's reset_parameters(), or init, must fill the module's own tensors in place. "
            "Or make the model on a real device.",
        )
