"""Pretrained weights: every rank reads the tensors that it holds, and no others."""

import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from penstock.errors import MismatchError
from penstock.runtime.state.pretrained_names import NameMatch, Rename, match_names
from penstock.runtime.state.safetensors_files import StoredTensor, find_tensors, read_tensor
from penstock.runtime.state.state_index import Entry, state_entries
from penstock.units import show_count

_log = logging.getLogger(__name__)

NUM_LISTED = 8
"""Names of a list in a message; a longer list ends with the number of the others."""
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Pretrained:
    """Pretrained weights, as `penstock.pretrained` describes them."""

    source: Path
    strict: bool = True
    rename: Rename | None = None
    init: Callable[[nn.Module], object] | None = None
    """Fills modules without `reset_parameters` whose tensors are missing."""


def pretrained(
    source: str | Path,
    *,
    strict: bool = True,
    rename: Rename | None = None,
    init: Callable[[nn.Module], object] | None = None,
) -> Pretrained:
    """Weights of safetensors files, for `init=` of `penstock.Pipeline` and `penstock.materialize`.

    Every rank reads only the tensors that it holds. They are converted to the types of the model. A file of a base
    model fits a model with a head, and the reverse, if the model has a `base_model_prefix`, as those of transformers
    have. Tensors of a head that the file lacks are initialized, with a warning.

    Args:
        source: A folder that `save_pretrained` wrote, a `.safetensors` file, or the index of a sharded one.
        strict: Whether tensors that the file lacks, or that the model lacks, are an error. Otherwise the first are
            initialized and the second are ignored, with a warning.
        rename: Converts a name in the model to the name in the file.
        init: Fills missing tensors of modules without `reset_parameters`.

    Example:
        >>> with torch.device("meta"):  # doctest: +SKIP
        ...     model = LlamaForCausalLM(config)
        >>> pipe = penstock.Pipeline(model, plan, loss, inputs=ids, init=penstock.pretrained("llama"))  # doctest: +SKIP
    """
    return Pretrained(Path(source), strict, rename, init)


@dataclass(frozen=True, eq=False)
class Weights:
    """The tensors of files that belong to a model."""

    source: Path
    entries: Mapping[str, Entry]
    """The tensors of the model that the files hold, by name."""
    stored: Mapping[str, StoredTensor]
    match: NameMatch

    def load(self, model: nn.Module, names: Collection[str] | None) -> None:
        """Fill the named tensors of a model, or all of them. Each is read from its file when its turn comes.

        Raises:
            MismatchError: A tied tensor has different values under its names in the file.
        """
        with torch.no_grad():
            for name, entry in self.entries.items():
                if names is None or name in names:
                    entry.tensor(model).copy_(self._read(name))
        match = self.match
        initialized = [name for name in (*match.missing, *match.missing_head) if names is None or name in names]
        if initialized:
            verb, has = ("is", "has its") if len(initialized) == 1 else ("are", "have their")
            warnings.warn(
                f"{self.source}: {show_count(len(initialized), 'tensor')} of the model {verb} not in the files, and "
                f"{has} initial values: {_listed(initialized)}. Train before you use the model.",
                UserWarning,
                stacklevel=2,
            )
        if ignored := (*match.unexpected, *match.unexpected_head):
            _log.warning("%s: the model lacks these tensors, which are ignored: %s", self.source, _listed(ignored))

    def _read(self, name: str) -> Tensor:
        first, *others = self.match.sources[name]
        value = read_tensor(self.stored[first], first)
        for other in others:
            if not torch.equal(value, read_tensor(self.stored[other], other)):
                raise MismatchError(
                    f"{first!r} and {other!r} are one tensor in the model, but two different ones in the files",
                    where=str(self.source),
                    hint="Create the model without tied weights (tie_word_embeddings=False).",
                )
        return value


def find_weights(model: nn.Module, init: Pretrained) -> Weights:
    """Find the tensors of a model in files. Only headers are read.

    Raises:
        FileError: The files cannot be read.
        MismatchError: The files are of another model.
    """
    stored = find_tensors(init.source)
    entries = state_entries(model)
    match = match_names(model, entries, stored.keys(), init.rename)
    by_name = {entry.name: entry for entry in entries if entry.name in match.sources}
    misfits = [text for entry in by_name.values() if (text := _misfit(entry, stored, match.sources[entry.name]))]
    problems: list[tuple[str, Sequence[str]]] = [("have another shape or type", misfits)]
    if init.strict:
        problems += [
            ("are in the model, but not in the files", match.missing),
            ("are in the files, but not in the model", match.unexpected),
        ]
    texts = [f"{len(names)} {what}: {_listed(names)}" for what, names in problems if names]
    if texts or not by_name:
        raise MismatchError(
            f"the weights do not fit the model. {'; '.join(texts)}" if texts else "no weights fit the model",
            where=str(init.source),
            hint=""
            if misfits or not by_name
            else "Create the model from the config.json of these weights. strict=False of penstock.pretrained "
            "initializes tensors that are missing, and ignores others; rename= converts names.",
        )
    return Weights(init.source, by_name, stored, match)


def _misfit(entry: Entry, stored: Mapping[str, StoredTensor], sources: Sequence[str]) -> str:
    for source in sources:
        item = stored[source]
        if item.shape != entry.shape or (item.dtype in _FLOATS) != entry.dtype.is_floating_point:
            return f"{source} ({item.dtype} {item.shape} in the files, {entry.dtype} {entry.shape} in the model)"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NUM_LISTED
    return ", ".join(names[:NUM_LISTED]) + (f" and {more} more" if more > 0 else "")
