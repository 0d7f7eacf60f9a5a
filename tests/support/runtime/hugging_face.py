"""Tiny models of transformers with random weights, and pipelines of them, as functions that ranks can run."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import penstock
from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.state import pretrained_weights, safetensors_files
from tests.support.runtime.meta_models import MODELS, on_meta

WORDS, LENGTH, ROWS = 32, 5, 6
_SMALL: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL |= {"intermediate_size": 32, "attn_implementation": "eager"}
_GPT2: dict[str, Any] = {
    "vocab_size": WORDS,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 8,
    "use_cache": False,
}
_GPT2 |= {"attn_implementation": "eager", "bos_token_id": 0, "eos_token_id": 0}
_T5: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "use_cache": False,
}


@dataclass(frozen=True)
class Case:
    """A class of transformers and its configuration."""

    kind: str
    config: str
    options: dict[str, Any]


CASES = {
    "llama": Case("LlamaForCausalLM", "LlamaConfig", {**_SMALL, "use_cache": False}),
    "llama_tied": Case("LlamaForCausalLM", "LlamaConfig", {**_SMALL, "use_cache": False, "tie_word_embeddings": True}),
    "llama_base": Case("LlamaModel", "LlamaConfig", {**_SMALL, "use_cache": False}),
    "gpt2": Case("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "bert": Case("BertForMaskedLM", "BertConfig", _SMALL),
    "bert_classes": Case("BertForSequenceClassification", "BertConfig", _SMALL),
    "t5": Case("T5ForConditionalGeneration", "T5Config", _T5),
}


def make(name: str, **options: Any) -> Any:
    """A model of a case. Its weights are those of torch's generator."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    case = CASES[name]
    config = getattr(transformers, case.config)(**{**case.options, "dropout_rate": 0.0, **options})
    for key in ("attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    return getattr(transformers, case.kind)(config)


def sample(name: str, seed: int = 0) -> dict[str, Tensor]:
    ids = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(seed))
    if name.startswith(("llama", "gpt2")):
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return {"input_ids": ids, **({"decoder_input_ids": ids} if name == "t5" else {})}


def loss_of(output: Any, targets: Tensor) -> Tensor:
    logits = output.logits if hasattr(output, "logits") else output[0]
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def targets_of(name: str, seed: int = 0) -> Tensor:
    shape = (ROWS,) if name == "bert_classes" else (ROWS, LENGTH)
    most = 2 if name == "bert_classes" else 16
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed + 100))


def num_blocks(name: str) -> int:
    return len(find_blocks(make(name), None, sample(name)))


def write(name: str, folder: Path, **options: Any) -> Any:
    """A model with random weights, which `save_pretrained` of transformers writes to a folder."""
    torch.manual_seed(3)
    model = make(name)
    for item in model.parameters():
        nn.init.normal_(item, std=0.3)
    model.save_pretrained(folder, **options)
    return model


class Held(NamedTuple):
    """What a rank read and holds after its pipeline is created, and what it has after training."""

    read: dict[str, int]
    """Bytes by name."""
    values: dict[str, Tensor]
    buffers: dict[str, Tensor]
    losses: list[Tensor]
    warned: list[str]
    trained: dict[str, Tensor]


def start_from(name: str, plan: Plan, folder: str, steps: int = 0, save: str = "", **options: Any) -> Held:
    """Create a pipeline from a folder of weights, train it, and write it."""
    read: dict[str, int] = {}
    original = safetensors_files.read_tensor

    def counted(stored: Any, name: str) -> Tensor:
        value = original(stored, name)
        read[name] = read.get(name, 0) + value.nbytes
        return value

    vars(pretrained_weights)["read_tensor"] = counted
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.device("meta"):
                model = make(name, **options.pop("config", {}))
            pipe = Pipeline(model, plan, loss_of, inputs=sample(name), init=penstock.pretrained(folder, **options))
    finally:
        vars(pretrained_weights)["read_tensor"] = original
    values = {key: item.detach().clone() for key, item in pipe.named_parameters().items()}
    buffers = {key: item.clone() for key, item in pipe.named_buffers().items()}
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        losses.append(pipe.step(sample(name, step), targets_of(name, step)))
        optimizer.step()
    if save:
        pipe.save_pretrained(save)
    trained = {key: item.detach().clone() for key, item in pipe.named_parameters().items()}
    pipe.close()
    ours = [str(item.message) for item in caught if str(folder) in str(item.message)]
    return Held(read, values, buffers, losses, ours, trained)


def train_alone(name: str, model: Any, steps: int) -> list[Tensor]:
    """The losses of the model's own forward and autograd."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(**sample(name, step)), targets_of(name, step))
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def error_of(function: Callable[[], Any]) -> str:
    try:
        function()
    except penstock.PenstockError as error:
        return str(error)
    return ""


class Trained(NamedTuple):
    """The parameters that a rank trained."""

    values: dict[str, Tensor]

    @staticmethod
    def empty() -> nn.Module:
        """The model that was trained, on the meta device."""
        return on_meta("mlp")


def train_anywhere(plan: Plan, folder: str) -> Trained:
    """Train a plain model for two steps, and write it."""
    _, loss, batch, _ = MODELS["mlp"]
    pipe = Pipeline(on_meta("mlp"), plan, loss)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        pipe.step(*batch(step))
        optimizer.step()
    assert pipe.save_pretrained(folder) == Path(folder)
    values = {**pipe.named_parameters()}
    pipe.close()
    return Trained({key: item.detach().clone() for key, item in values.items()})


def save_twice(plan: Plan, folder: str) -> str:
    """Write a model to the same folder twice, and return the error."""
    pipe = Pipeline(on_meta("mlp"), plan, MODELS["mlp"][1])
    pipe.save_pretrained(folder)
    error = error_of(lambda: pipe.save_pretrained(folder))
    pipe.close()
    return error


def adapted(name: str) -> Any:
    """A model with adapters of peft."""
    import peft

    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads attributes that transformers deprecates
        config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["norm"])
        return peft.get_peft_model(make(name), config)


def train_adapters(name: str, plan: Plan, folder: str, out: str) -> tuple[list[Tensor], dict[str, Tensor], list[str]]:
    """Read the weights of the base model, and train adapters."""
    model = adapted(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipe = Pipeline(model, plan, loss_of, inputs=sample(name), init=penstock.pretrained(folder))
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.5)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        losses.append(pipe.step(sample(name, step), targets_of(name, step)))
        optimizer.step()
    values = {key: item.detach().clone() for key, item in pipe.named_parameters().items()}
    pipe.save_pretrained(out)
    pipe.close()
    return losses, values, [str(item.message) for item in caught if folder in str(item.message)]
