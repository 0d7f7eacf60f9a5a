"""A folder of safetensors files that all ranks write together, as `save_pretrained` of transformers writes it.

    model-00001-of-00002.safetensors   the tensors of one rank; a rank with many writes several files
    model.safetensors.index.json       the file of each tensor; one file alone is model.safetensors, without an index
    config.json                        if the model has a config, and generation_config.json likewise

A tied tensor is written once, under its first name. The folder gets its name when everything in it is on disk. Of a
model with adapters of peft only the adapters are written, as peft does (`peft_adapters.py`).
"""

import copy
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from penstock.dist import Consensus
from penstock.errors import FileError, InputError
from penstock.io import flush_to_disk, reason, write_whole
from penstock.runtime.state.peft_adapters import adapter_entries, adapters, is_peft_model
from penstock.runtime.state.safetensors_files import INDEX, SINGLE
from penstock.runtime.state.state_index import Entry

MAX_FILE_BYTES = 5 * 10**9


def save_pretrained(
    model: nn.Module,
    entries: Sequence[Entry],
    writers: Mapping[str, int],
    consensus: Consensus,
    folder: Path,
    await_folder: Any,
    *,
    read: Callable[[Entry], Tensor],
) -> Path:
    """Write the tensors of all ranks to a new folder. All ranks must call it.

    Args:
        model: The model, of which this rank holds a part.
        entries: All tensors of its state.
        writers: By name: the rank that writes a tensor.
        consensus: Agreement between the ranks.
        folder: The folder. It must not exist, or be empty.
        await_folder: Waits until this rank can access a folder.
        read: Returns the tensor of an entry.

    Raises:
        InputError: The folder has contents already, or safetensors is not installed.
        FileError: A rank cannot write its files.
    """
    rank = consensus.rank
    has_adapters = is_peft_model(model)
    files = [] if has_adapters else _files(entries, writers)
    with ExitStack() as stack:

        def begin(_: list[None]) -> list[str]:
            unfinished = _begin(folder)
            stack.callback(shutil.rmtree, unfinished, ignore_errors=True)
            return [unfinished.name] * consensus.world

        name = consensus.decide("starting to write weights", _check_writable, begin)
        unfinished = folder.parent / name
        consensus.run_everywhere("looking for the folder of weights", lambda: await_folder(unfinished, rank))

        def write() -> dict[str, Tensor]:
            if has_adapters:
                own = [entry for entry in entries if writers[entry.name] == rank]
                return {entry.name: _own_memory(read(entry)) for entry in adapter_entries(model, own)}
            for number, (writer, part) in enumerate(files):
                if writer == rank:
                    tensors = {entry.keys[0]: _own_memory(read(entry)) for entry in part}
                    _write(tensors, unfinished / _file_name(number, len(files)), rank)
            return {}

        def finish(parts: list[dict[str, Tensor]]) -> list[None]:
            if has_adapters:
                tensors = {name: tensor for part in parts for name, tensor in part.items()}
                for path, adapter, config in adapters(model, tensors):
                    (unfinished / path).parent.mkdir(exist_ok=True)
                    _write({name: item.clone() for name, item in adapter.items()}, unfinished / path, rank)
                    config.save_pretrained(str((unfinished / path).parent))
            else:
                _write_index([part for _, part in files], unfinished)
                types = {item.dtype for _, part in files for item in part if item.is_parameter}
                _write_configs(model, types, unfinished)
            _finish(unfinished, folder)
            return [None] * consensus.world

        consensus.decide("writing weights", write, finish)
    return folder


def _check_writable() -> None:
    try:
        import safetensors.torch  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("writing weights needs safetensors", hint="pip install 'penstock[hf]'") from None


def _files(entries: Sequence[Entry], writers: Mapping[str, int]) -> list[tuple[int, list[Entry]]]:
    """The files to write: of each, its rank and its tensors."""
    files: list[tuple[int, list[Entry]]] = []
    for rank in sorted(set(writers.values())):
        own = [entry for entry in entries if writers[entry.name] == rank]
        files += [(rank, part) for part in _parts(own)]
    return files


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    for entry in entries:
        if part and sum(item.num_bytes for item in (*part, entry)) > MAX_FILE_BYTES:
            yield part
            part = []
        part.append(entry)
    yield part


def _file_name(number: int, count: int) -> str:
    return SINGLE if count == 1 else f"model-{number + 1:05}-of-{count:05}.safetensors"


def _begin(folder: Path) -> Path:
    """Create a hidden folder beside the final one."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                "the folder exists, and is not empty",
                where=str(folder),
                hint="Write weights to a new folder. Add other files, such as those of the tokenizer, afterwards.",
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.part"
        unfinished.mkdir()
    except OSError as error:
        raise FileError(f"cannot be written: {reason(error)}", where=str(folder)) from None
    return unfinished


def _write(tensors: dict[str, Tensor], path: Path, rank: int) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
        flush_to_disk(path)
    except (OSError, SafetensorError) as error:
        text = reason(error) if isinstance(error, OSError) else str(error)
        raise FileError(f"rank {rank} cannot write: {text}", where=str(path.parent.parent)) from None


def _own_memory(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, contiguous, in memory that no other tensor uses: safetensors requires it."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def _write_index(files: Sequence[Sequence[Entry]], unfinished: Path) -> None:
    if len(files) > 1:
        index = {
            "metadata": {"total_size": sum(entry.num_bytes for part in files for entry in part)},
            "weight_map": {
                entry.keys[0]: _file_name(number, len(files)) for number, part in enumerate(files) for entry in part
            },
        }
        write_whole(unfinished / INDEX, msgspec.json.format(msgspec.json.encode(index), indent=2))


def _finish(unfinished: Path, folder: Path) -> None:
    """Give the folder its name when all of it is on disk."""
    try:
        for path in unfinished.rglob("*"):
            flush_to_disk(path)
        flush_to_disk(unfinished)
        unfinished.rename(folder)
        flush_to_disk(folder.parent)
    except OSError as error:
        raise FileError(f"cannot be written: {reason(error)}", where=str(folder)) from None


def _write_configs(model: nn.Module, types: Collection[torch.dtype], folder: Path) -> None:
    """Write the configuration of a model of transformers, with which `from_pretrained` creates it."""
    config: Any = getattr(model, "config", None)
    if callable(getattr(config, "save_pretrained", None)):
        config = copy.deepcopy(config)
        config.architectures = [type(model).__name__]
        dtypes = {dtype for dtype in types if dtype.is_floating_point}
        if len(dtypes) == 1:
            config.dtype = dtypes.pop()
        config.save_pretrained(folder)
    generation: Any = getattr(model, "generation_config", None)
    if callable(getattr(generation, "save_pretrained", None)) and _can_generate(model):
        generation.save_pretrained(folder)


def _can_generate(model: nn.Module) -> bool:
    can_generate = getattr(model, "can_generate", None)
    return bool(can_generate()) if callable(can_generate) else True
