"""Run the initialization of one module, and record which of its tensors it fills.

A rank initializes only modules that hold tensors of its own. A module that filled tensors of another module would make
their values depend on the plan, so that is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.errors import InputError


def storage_of(tensor: Tensor) -> int:
    """Identifies a storage: equal for all views of the same memory."""
    return int(tensor.untyped_storage()._cdata)


class _Foreign(Exception):  # noqa: N818
    """A tensor of another module is written to."""


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records which tensors of a module are written to. Raises at a write to another module."""

    def __init__(self, own: Mapping[int, str], all_storages: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.own = own
        self.all_storages = all_storages
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, Tensor):
                    self._record(storage_of(tensor))
        return func(*args, **kwargs)

    def _record(self, storage: int) -> None:
        if storage in self.own:
            self.names.add(self.own[storage])
        elif storage in self.all_storages:
            raise _Foreign(self.all_storages[storage])


def find_writes(function: Callable[[], object], tensors: Sequence[Tensor]) -> list[int]:
    """Call a function, and return the ids of the tensors that it writes to, in their order."""
    writes = _Writes({storage_of(item): str(index) for index, item in enumerate(tensors)}, {})
    with writes:
        function()
    return [id(item) for index, item in enumerate(tensors) if str(index) in writes.names]


class ModuleInit:
    """Initializes a module whose tensors were moved from the meta device to a real one, without values."""

    def __init__(
        self, module: nn.Module, path: str, names: Mapping[str, Tensor], all_storages: Mapping[int, str]
    ) -> None:
        self._module = module
        self._path = path
        self._names = tuple(names)
        self._all_storages = all_storages

    def run(self, reset: Callable[[], object]) -> set[str]:
        """Run `reset`, and return the names of the tensors that it filled.

        Raises:
            InputError: `reset` fails, fills tensors of another module, or replaces a parameter.
        """
        module = self._module
        tensors = {**module._parameters, **module._buffers}
        before = {name: item for name, item in tensors.items() if item is not None}
        writes = _Writes({storage_of(item): name for name, item in before.items()}, self._all_storages)
        try:
            with writes:
                reset()
        except _Foreign as foreign:
            raise self._refused(
                f"also fills {foreign.args[0]} of another module: ranks without both would get other values"
            ) from None
        except InputError:
            raise
        except Exception as error:
            raise self._refused(f"raises {type(error).__name__}: {error}") from error
        filled = writes.names & set(self._names)
        for name in self._names:
            if name in module._parameters and module._parameters[name] is not before[name]:
                raise self._refused(f"replaces the parameter {name!r} instead of filling it")
            buffer = module._buffers.get(name)
            if buffer is not None and buffer is not before[name]:
                # A buffer may be replaced.
                module._buffers[name] = buffer.to(before[name].device, before[name].dtype)
                filled.add(name)
        return filled

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"the model is on the meta device, and the initialization of {self._path or 'the model'!r} "
            f"({type(self._module).__name__}) {what}",
            hint="A module's reset_parameters(), or init=, must fill the module's own tensors in place. "
            "Alternatively create the model on a real device.",
        )
