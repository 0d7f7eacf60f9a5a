"""Safetensors files: the names and shapes of their tensors, and single tensors on request.

Opening reads the headers only. A tensor is read when it is asked for.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from torch import Tensor

from penstock.errors import FileError, InputError
from penstock.io import read_bytes, reason

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "pytorch_model.pt", "model.pt")
_PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
_CONVERT = (
    "Files of pickled tensors run code when they are loaded. Save the weights as safetensors first, on a machine that "
    "has them: AutoModel.from_pretrained(old).save_pretrained(new)."
)

T = TypeVar("T")


class StoredTensor(NamedTuple):
    """A tensor in a file."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """Its code in the header, such as "BF16"."""


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def find_tensors(source: Path) -> dict[str, StoredTensor]:
    """Read the headers of all files.

    Args:
        source: A safetensors file, the index of a sharded one, or a folder with either, as `save_pretrained` of
            transformers writes it.

    Raises:
        FileError: There are no weights, or a file is damaged.
        InputError: The weights are pickled, or the package safetensors is not installed.
    """
    if source.is_dir():
        # The same order as in transformers.
        for name in (SINGLE, INDEX):
            if (source / name).is_file():
                return find_tensors(source / name)
        for name in _PICKLED:
            if (source / name).exists():
                raise InputError(
                    f"the folder has its weights in {name}, which is pickled", where=str(source), hint=_CONVERT
                )
        raise FileError(
            f"the folder has neither {SINGLE} nor {INDEX}",
            where=str(source),
            hint="Pass a folder that save_pretrained of transformers wrote, or a .safetensors file.",
        )
    if not source.is_file():
        raise FileError(
            "no such file or folder",
            where=str(source),
            hint="Weights are read from local files. Download a model of a hub first (huggingface-cli download).",
        )
    if source.suffix in _PICKLED_SUFFIXES:
        raise InputError("the file is pickled", where=str(source), hint=_CONVERT)
    return _sharded(source) if source.suffix == ".json" else _header(source)


def read_tensor(stored: StoredTensor, name: str) -> Tensor:
    """Read one tensor. Nothing else of the file is read."""

    def read() -> Tensor:
        with _open(stored.file) as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor

    return _attempt(read, stored.file)


def _sharded(index: Path) -> dict[str, StoredTensor]:
    try:
        weight_map = msgspec.json.decode(read_bytes(index), type=_Index).weight_map
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
        raise FileError(f"not an index of safetensors files: {error}", where=str(index)) from None
    headers: dict[str, Mapping[str, StoredTensor]] = {}
    found = {}
    for name, file in weight_map.items():
        if Path(file).name != file:
            raise FileError(f"the index names {file!r}, which is not in its folder", where=str(index))
        if file not in headers:
            headers[file] = _header(index.parent / file)
        if name not in headers[file]:
            raise FileError(f"the index names {name!r} in {file}, which lacks it", where=str(index))
        found[name] = headers[file][name]
    return found


def _header(file: Path) -> dict[str, StoredTensor]:
    if not file.is_file():
        raise FileError("no such file", where=str(file), hint="Copy all files of the folder.")

    def read() -> dict[str, StoredTensor]:
        with _open(file) as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(file, tuple(item.get_shape()), item.get_dtype()) for name, item in slices.items()
            }

    return _attempt(read, file)


def _open(file: Path) -> Any:
    from safetensors import safe_open

    return safe_open(str(file), framework="pt", device="cpu")


def _attempt(function: Callable[[], T], file: Path) -> T:
    try:
        from safetensors import SafetensorError
    except ModuleNotFoundError:
        raise InputError("reading weights needs safetensors", hint="pip install 'penstock[hf]'") from None
    try:
        return function()
    except SafetensorError as error:
        raise FileError(f"not a valid safetensors file: {error}", where=str(file), hint="Copy it again.") from None
    except OSError as error:
        raise FileError(f"cannot be read: {reason(error)}", where=str(file)) from None
