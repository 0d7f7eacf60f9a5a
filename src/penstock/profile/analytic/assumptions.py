"""The assumptions of an analytic profile, as sentences."""

from penstock.profile.analytic.builtin import Model
from penstock.profile.analytic.configs import BertConfig, Gpt2Config, LlamaConfig, VitConfig
from penstock.profile.analytic.vision import CLASSES, IMAGE_SIZE, ResnetConfig
from penstock.profile.device_kinds import Precision

_GENERAL = (
    "Computed from data sheets and operation counts, not measured.",
    "A kernel takes the maximum of its compute and memory time at estimated attainable rates, plus a launch overhead.",
    "Kernels run one after another; dropout is off; nothing is recomputed except inside fused attention.",
    "Every micro-batch adds its weight gradients to those of earlier ones.",
    "A tensor saved by two layers is counted in the layer that has it as input.",
    "The last layer gets the labels from the data loader, not through the pipeline.",
)
_PRECISION: dict[Precision, str] = {
    "bf16": "Mixed precision: parameters, gradients and activations take 2 bytes; AdamW keeps an fp32 master copy and "
    "two fp32 moments; kinds without bf16 (V100-16, T4) use their fp16 rate.",
    "fp32": "Single precision without TF32: everything takes 4 bytes; AdamW keeps two moments.",
}


def assumptions(model: Model, precision: Precision, *, sequence: int, is_default_sequence: bool) -> list[str]:
    """Return the assumptions for any model, for the precision, for the model family and for the sequence length."""
    return [
        *_GENERAL,
        _PRECISION[precision],
        *_family(model),
        *_sequence(model, sequence, is_default=is_default_sequence),
    ]


def _family(model: Model) -> list[str]:
    match model:
        case Gpt2Config():
            return [_attention(causal=True), _tied("token embedding and head", tied=model.tie_word_embeddings)]
        case LlamaConfig():
            return [
                _attention(causal=True),
                "RMSNorm and rotary embeddings are fused kernels; keys and values are saved unexpanded.",
                _tied("token embedding and head", tied=model.tie_word_embeddings),
            ]
        case BertConfig():
            return [
                _attention(causal=False),
                "BERT includes pooler, next-sentence head and masked-word head; the loss covers every token.",
                _tied("word embedding and masked-word decoder", tied=model.tie_word_embeddings),
            ]
        case VitConfig():
            return [_attention(causal=False), "The first layer has no input gradient."]
    images = f"Images are {IMAGE_SIZE} x {IMAGE_SIZE} with {CLASSES:,} classes; the first layer has no input gradient."
    rates = "Convolutions attain the rate of matrix products; ReLU works in place."
    norms = ["BatchNorm computes its statistics over each micro-batch."] if isinstance(model, ResnetConfig) else []
    return [images, rates, *norms]


def _attention(*, causal: bool) -> str:
    causal_part = "; the causal mask halves its arithmetic" if causal else ""
    return (
        "Attention is one fused kernel (FlashAttention): scores are not stored, the backward recomputes them"
        f"{causal_part}."
    )


def _tied(what: str, *, tied: bool) -> str:
    return f"The {what} share one table." if tied else f"The {what} have separate tables."


def _sequence(model: Model, sequence: int, *, is_default: bool) -> list[str]:
    if isinstance(model, LlamaConfig) and sequence > model.max_position_embeddings:
        longest = model.max_position_embeddings
        return [f"Rotary embeddings cover {sequence:,} tokens, beyond the configured {longest:,}."]
    if isinstance(model, Gpt2Config | LlamaConfig | BertConfig) and is_default:
        return [f"No sequence length is specified: rows have {sequence:,} tokens, the longest configured."]
    return []
