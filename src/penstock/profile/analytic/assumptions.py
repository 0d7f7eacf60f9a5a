"""The assumptions of an analytic profile, as sentences."""

from penstock.profile.analytic.architectures import FUSED_ATTENTION, ModelConfig
from penstock.profile.analytic.builtin import Model
from penstock.profile.analytic.vision import CLASSES, IMAGE_SIZE, ResnetConfig
from penstock.profile.recipe import Precision, Recipe

_GENERAL = (
    "Computed from data sheets and operation counts, not measured.",
    "A kernel takes the longest of its compute time, its memory time and its launch, at estimated attainable rates.",
    "Kernels run one after another; dropout is off.",
    "Every micro-batch adds its weight gradients to those of earlier ones.",
    "A tensor saved by two layers is counted in the layer that has it as input.",
    "The last layer gets the labels from the data loader, not through the pipeline.",
)
_MIXED = (
    "Mixed precision: parameters, gradients and activations take 2 bytes; AdamW keeps an fp32 master copy and two fp32 "
    "moments"
)
_PRECISION: dict[Precision, str] = {
    "bf16": f"{_MIXED}; kinds without bf16 (V100-16, T4, Titan-RTX, RTX-2080Ti) use their fp16 rate.",
    "fp16": f"{_MIXED}.",
    "fp8": f"{_MIXED}; products of linear layers are in fp8, with casts fused into other kernels; attention, experts "
    "and convolutions are in bf16.",
    "fp32": "Single precision without TF32: everything takes 4 bytes; AdamW keeps two moments.",
    "tf32": "Single precision, products in TF32: everything takes 4 bytes; AdamW keeps two moments.",
}
_EAGER = "Attention is eager: products and softmax over all pairs of tokens are kernels of their own."
_CHECKPOINTING = {
    "none": "Activations are saved, not checkpointed.",
    "selective": "Selective checkpointing: the scores of eager attention are computed again; fused attention does so "
    "anyway.",
    "full": "Full checkpointing: each layer between the first and the last keeps its input, and its forward runs again "
    "before its backward. What one layer saves while it does is not counted.",
}


def assumptions(model: Model, recipe: Recipe, *, sequence: int, is_default_sequence: bool) -> list[str]:
    """Return the assumptions for any model, for the recipe, for the model family and for the sequence length."""
    return [
        *_GENERAL,
        _PRECISION[recipe.precision],
        *_recipe(recipe),
        *(note for note in _family(model) if recipe.attention == "fused" or not note.startswith(FUSED_ATTENTION)),
        *_sequence(model, sequence, is_default=is_default_sequence),
    ]


def _recipe(recipe: Recipe) -> list[str]:
    notes = [_CHECKPOINTING[recipe.checkpointing]]
    if recipe.attention == "eager":
        notes.append(_EAGER)
    if recipe.fp32_head:
        notes.append("The head and the loss are in fp32, the product in TF32 where the device has it.")
    if recipe.tensor_parallel > 1:
        notes.append(
            f"{recipe.tensor_parallel} GPUs share every layer (tensor parallelism): a device of a plan is such a "
            "group; bytes are those of one GPU. Norms and residuals are computed by all of them. The vocabulary is "
            "padded so that it can be split. Every half of a block has one all-reduce in each direction."
        )
    return notes


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
