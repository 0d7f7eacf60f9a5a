"""The assumptions of an analytic profile, as sentences."""

from penstock.profile.analytic.architectures import ModelConfig
from penstock.profile.analytic.builtin import Model
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
    if isinstance(model, ModelConfig):
        return model.notes()
    images = f"Images are {IMAGE_SIZE} x {IMAGE_SIZE} with {CLASSES:,} classes; the first layer has no input gradient."
    rates = "Convolutions attain the rate of matrix products; ReLU works in place."
    norms = ["BatchNorm computes its statistics over each micro-batch."] if isinstance(model, ResnetConfig) else []
    return [images, rates, *norms]


def _sequence(model: Model, sequence: int, *, is_default: bool) -> list[str]:
    if not isinstance(model, ModelConfig) or model.TAKES_IMAGES:
        return []
    if sequence > model.longest:
        return [f"Rows have {sequence:,} tokens, beyond the configured {model.longest:,}."]
    if is_default:
        return [f"No sequence length is specified: rows have {sequence:,} tokens, the longest configured."]
    return []
