"""What an analytic profile takes for granted, in sentences."""

from penstock.profile.analytic.builtin import Model
from penstock.profile.analytic.configs import BertConfig, Gpt2Config, LlamaConfig, VitConfig
from penstock.profile.analytic.vision import CLASSES, IMAGE_SIZE, ResnetConfig
from penstock.profile.device_kinds import Precision

_GENERAL = (
    "Computed from data sheets and operation counts, not measured.",
    "A kernel takes the longer of its arithmetic and its memory traffic, at estimated attainable rates, and a launch.",
    "Kernels run one after another; dropout is off; nothing is recomputed except inside fused attention.",
    "Every micro-batch adds its weight gradients onto those of earlier ones.",
    "A tensor kept by two units is counted by the unit that takes it as input.",
    "The labels reach the last unit with the data, not through the pipeline.",
)
_PRECISION: dict[Precision, str] = {
    "bf16": "Mixed precision: parameters, gradients and activations take 2 bytes; AdamW keeps an fp32 master copy and "
    "two fp32 moments; kinds without bf16 (V100-16, T4) are taken at their fp16 rate.",
    "fp32": "Single precision without TF32: everything takes 4 bytes; AdamW keeps two moments.",
}


def assumptions(model: Model, precision: Precision, *, sequence: int, sequence_given: bool) -> list[str]:
    """What holds for any model, for the precision, and for the family."""
    return [*_GENERAL, _PRECISION[precision], *_family(model), *_sequence(model, sequence, given=sequence_given)]


def _family(model: Model) -> list[str]:
    match model:
        case Gpt2Config():
            return [_attention(causal=True), _tied("token embedding and head", tied=model.tie_word_embeddings)]
        case LlamaConfig():
            return [
                _attention(causal=True),
                "RMSNorm and rotary positions are fused kernels; keys and values are kept unexpanded.",
                _tied("token embedding and head", tied=model.tie_word_embeddings),
            ]
        case BertConfig():
            return [
                _attention(causal=False),
                "BERT includes pooler, next-sentence head and masked-word head; the loss covers every token.",
                _tied("word embedding and masked-word decoder", tied=model.tie_word_embeddings),
            ]
        case VitConfig():
            return [_attention(causal=False), "The first unit has no input gradient."]
    pictures = f"Images are {IMAGE_SIZE} x {IMAGE_SIZE} with {CLASSES:,} classes; the first unit has no input gradient."
    reach = "Convolutions reach the rate of matrix products; ReLU works in place."
    norms = ["BatchNorm takes its statistics from each micro-batch."] if isinstance(model, ResnetConfig) else []
    return [pictures, reach, *norms]


def _attention(*, causal: bool) -> str:
    causal_part = "; the causal mask halves its arithmetic" if causal else ""
    return f"Attention is one fused kernel (flash style): scores are not stored, backward does them again{causal_part}."


def _tied(what: str, *, tied: bool) -> str:
    return f"The {what} share one table." if tied else f"The {what} have a table each."


def _sequence(model: Model, sequence: int, *, given: bool) -> list[str]:
    if isinstance(model, LlamaConfig) and sequence > model.max_position_embeddings:
        longest = model.max_position_embeddings
        return [f"Rotary positions reach {sequence:,} tokens, past the configured {longest:,}."]
    if isinstance(model, Gpt2Config | LlamaConfig | BertConfig) and not given:
        return [f"No sequence length was given: rows have {sequence:,} tokens, the longest that is configured."]
    return []
