"""Precisions of training: the types of parameters, products, gradients and master weights. Without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.errors import InputError
from penstock.names import suggest_names

ELEMENT_BYTES = MappingProxyType({"float32": 4, "bfloat16": 2, "float16": 2})
EPSILON = MappingProxyType({"float32": 2.0**-23, "tf32": 2.0**-10, "bfloat16": 2.0**-7, "float16": 2.0**-10})
ACCUMULATED_BYTES = ELEMENT_BYTES["float32"]
"""Bytes of an element of gradients, of master weights and of each moment of AdamW."""


@dataclass(frozen=True)
class TrainingPrecision:
    """A precision of training.

    Gradients are accumulated and reduced in float32 in all of them.
    """

    name: str
    parameter_type: str = "float32"
    """The type in which layers hold parameters and buffers, as torch names it."""
    autocast_type: str | None = None
    """The type to which autocast casts the operands of matrix products; None: no autocast."""
    uses_tf32: bool = False
    """Whether products of float32 may round their operands to TF32."""

    @property
    def has_master_weights(self) -> bool:
        """Whether the optimizer updates a copy of the parameters in float32."""
        return self.parameter_type != "float32"

    @property
    def scales_loss(self) -> bool:
        """Whether gradients are computed in float16, whose range is too small for those of an unscaled loss."""
        return "float16" in (self.parameter_type, self.autocast_type)

    @property
    def compute_type(self) -> str:
        """The type in which matrix products are computed."""
        return self.autocast_type or self.parameter_type

    @property
    def epsilon(self) -> float:
        """The relative distance of neighbouring numbers in matrix products."""
        return EPSILON["tf32" if self.uses_tf32 else self.compute_type]

    @property
    def gradient_ratio(self) -> float:
        """Bytes of gradients per byte of trained parameters."""
        return ACCUMULATED_BYTES / ELEMENT_BYTES[self.parameter_type]

    @property
    def adamw_ratio(self) -> float:
        """Bytes of the state of AdamW and of further copies of the weights, per byte of trained parameters.

        These are master weights, or weights that autocast has cast and keeps for a step.
        """
        copies = 0.0 if self.autocast_type is None else ELEMENT_BYTES[self.autocast_type] / ACCUMULATED_BYTES
        return (2 + self.has_master_weights) * self.gradient_ratio + copies


PRECISIONS: Mapping[str, TrainingPrecision] = MappingProxyType(
    {
        item.name: item
        for item in (
            TrainingPrecision("fp32"),
            TrainingPrecision("tf32", uses_tf32=True),
            TrainingPrecision("bf16", "bfloat16"),
            TrainingPrecision("fp16", "float16"),
            TrainingPrecision("bf16-mixed", autocast_type="bfloat16"),
            TrainingPrecision("fp16-mixed", autocast_type="float16"),
        )
    }
)
"""All precisions, by name."""


def find_precision(name: str) -> TrainingPrecision:
    """Return a precision.

    >>> find_precision("bf16").has_master_weights, find_precision("bf16-mixed").autocast_type
    (True, 'bfloat16')

    Raises:
        InputError: There is none of this name.
    """
    if name not in PRECISIONS:
        hint = suggest_names(name, PRECISIONS, label="Precisions")
        raise InputError(f"{name!r} is not a precision of training", where="--precision", hint=hint)
    return PRECISIONS[name]
