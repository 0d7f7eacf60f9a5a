"""The adapters of a model of peft, as its `save_pretrained` writes them: one file each, with the names of peft.

The adapter "default" is in the folder itself, as `adapter_model.safetensors` and `adapter_config.json`; another one is
in a folder of its own, named as the adapter.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from penstock.errors import InputError
from penstock.runtime.state.state_index import Entry

_DEFAULT = "default"
_FILE = "adapter_model.safetensors"


def is_peft_model(model: nn.Module) -> bool:
    """Return whether a model has adapters of peft."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def adapter_entries(model: nn.Module, entries: Sequence[Entry]) -> list[Entry]:
    """Return the tensors that may belong to adapters: those of peft's own modules, and all that are trained."""
    trained = {name for name, item in model.named_parameters() if item.requires_grad}
    tuner: Any = getattr(model, "base_model", None)
    marks = (getattr(tuner, "prefix", None) or "lora_", "modules_to_save", "trainable_tokens_", "prompt_encoder")
    return [
        entry for entry in entries if entry.name in trained or any(mark in key for key in entry.keys for mark in marks)
    ]


def adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[tuple[Path, dict[str, Tensor], Any]]:
    """Yield the file, the tensors and the configuration of each adapter.

    Args:
        model: The model of peft.
        tensors: The tensors of all ranks' `adapter_entries`.

    Raises:
        InputError: peft needs other tensors for this kind of adapter.
    """
    from peft import get_peft_model_state_dict

    configs: Any = model.peft_config
    for name, config in configs.items():
        if config.is_prompt_learning:
            raise InputError(
                f"the adapter {name!r} of peft is a learned prompt, which pipe.save_pretrained does not write",
                hint="Save a checkpoint with pipe.save.",
            )
        try:
            adapter = get_peft_model_state_dict(
                model, state_dict=dict(tensors), adapter_name=name, save_embedding_layers=False
            )
        except (KeyError, AttributeError) as error:
            raise InputError(
                f"the adapter {name!r} of peft cannot be written: peft needs {error}",
                hint="Save a checkpoint with pipe.save.",
            ) from error
        saved = copy.deepcopy(config)
        saved.inference_mode = True  # as peft writes it
        yield Path(_FILE) if name == _DEFAULT else Path(name, _FILE), dict(adapter), saved
