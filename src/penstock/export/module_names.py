"""The modules of each stage, by the names that the model or the engine has for them.

A measured profile already has the model's own names. A computed profile has the layers "embedding", "block.3.attn" and
"head"; its architecture tells what Hugging Face calls them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.export.subject import Subject


class ModelNames(NamedTuple):
    """What a model calls its parts.

    Attributes:
        before: The modules before the blocks.
        block: The name of a block, with its number as {}.
        behind: The modules behind the blocks.
        everywhere: Modules without parameters that every stage calls, such as rotary embeddings.
    """

    before: tuple[str, ...]
    block: str
    behind: tuple[str, ...]
    everywhere: tuple[str, ...] = ()


_LLAMA = ModelNames(("model.embed_tokens",), "model.layers.{}", ("model.norm", "lm_head"), ("model.rotary_emb",))
_GPT2 = ModelNames(
    ("transformer.wte", "transformer.wpe", "transformer.drop"), "transformer.h.{}", ("transformer.ln_f", "lm_head")
)

HUGGING_FACE: Mapping[str, ModelNames] = MappingProxyType(
    {
        "gpt2": _GPT2,
        **dict.fromkeys(
            (
                "llama",
                "mistral",
                "qwen2",
                "qwen3",
                "gemma2",
                "gemma3_text",
                "phi3",
                "mixtral",
                "qwen3_moe",
                "deepseek_v3",
                "gpt_oss",
            ),
            _LLAMA,
        ),
        "gpt_neox": ModelNames(
            ("gpt_neox.embed_in", "gpt_neox.emb_dropout"),
            "gpt_neox.layers.{}",
            ("gpt_neox.final_layer_norm", "lm_head"),
            ("gpt_neox.rotary_emb",),
        ),
        "opt": ModelNames(
            ("model.decoder.embed_tokens", "model.decoder.embed_positions"),
            "model.decoder.layers.{}",
            ("model.decoder.final_layer_norm", "lm_head"),
        ),
        "bloom": ModelNames(
            ("transformer.word_embeddings", "transformer.word_embeddings_layernorm"),
            "transformer.h.{}",
            ("transformer.ln_f", "lm_head"),
        ),
        "falcon": ModelNames(
            ("transformer.word_embeddings",),
            "transformer.h.{}",
            ("transformer.ln_f", "lm_head"),
            ("transformer.rotary_emb",),
        ),
    }
)
"""The names in transformers' language models with a head, by `model_type`."""

TORCHTITAN = ModelNames(("tok_embeddings",), "layers.{}", ("norm", "lm_head"))
"""The names in torchtitan's decoders."""


def is_computed(subject: Subject) -> bool:
    """Whether the layers have the names of a computed profile with an embedding, blocks and a head."""
    names, roles = subject.layer_names, subject.roles
    inner = roles[1:-1]
    return names[0] == "embedding" and names[-1] == "head" and all(role.stack == "block." for role in inner)


def model_names(subject: Subject) -> ModelNames | None:
    """The names of the parts by architecture; None for a profile that already has the model's own names."""
    return HUGGING_FACE.get(subject.profile.architecture) if is_computed(subject) else None


def stage_modules(subject: Subject, names: ModelNames | None) -> tuple[tuple[str, ...], ...]:
    """The modules of every stage, in order, without those of `everywhere`.

    Args:
        subject: The plan. No stage begins inside a block.
        names: What the model calls its parts, for a profile with one layer before and one behind the blocks; None: the
            profile's own names.
    """
    stages = []
    for stage in subject.plan.stages:
        modules: list[str] = []
        for unit in range(stage.start, stage.stop):
            modules += _modules(subject, unit, names)
        stages.append(tuple(dict.fromkeys(modules)))
    return tuple(stages)


def rotary_modules(subject: Subject) -> tuple[str, ...]:
    """The modules that every stage of a Hugging Face model calls."""
    names = model_names(subject)
    if names is not None:
        return names.everywhere
    stack = next((role.stack for role in subject.roles if role.place == "block"), "")
    known = {item.block.removesuffix("{}"): item.everywhere for item in HUGGING_FACE.values()}
    return known.get(stack, ())


def _modules(subject: Subject, unit: int, names: ModelNames | None) -> tuple[str, ...]:
    role, own = subject.roles[unit], subject.layer_names[unit]
    if names is None:
        whole_block = f"{role.stack}{role.block}" if role.place == "block" else own
        return (whole_block,)
    if role.place == "block":
        return (names.block.format(role.block),)
    return names.before if role.place == "before" else names.behind
