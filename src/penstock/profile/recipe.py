"""How a model is trained on a device: what a computed profile depends on besides the model and the device."""

from typing import Literal

import msgspec

Precision = Literal["bf16", "fp16", "fp32", "tf32", "fp8"]
Attention = Literal["fused", "eager"]
Checkpointing = Literal["none", "selective", "full"]

MAX_TENSOR_PARALLEL = 64
ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp8": 2}
"""Bytes of an activation or a parameter. fp8 is the precision of products; tensors are stored in bf16."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is trained on a device.

    Attributes:
        precision: Precision of matrix products: "bf16", "fp16", "fp32", "tf32" or "fp8".
        attention: "fused" (FlashAttention, scores are never stored) or "eager" (products and softmax as kernels of
            their own, scores are saved).
        checkpointing: Activation checkpointing inside the layers: "none", "selective" (the scores of eager attention
            are computed again) or "full" (every layer of a block keeps its input only).
        tensor_parallel: Number of GPUs that share every layer. They form one device of a plan.
        fp32_head: Whether the head and its product are in fp32 (TF32 where the device has it).

    Example:
        >>> Recipe(precision="fp16", attention="eager").element_bytes
        2
    """

    precision: Precision = "bf16"
    attention: Attention = "fused"
    checkpointing: Checkpointing = "none"
    tensor_parallel: int = 1
    fp32_head: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation or a parameter."""
        return ELEMENT_BYTES[self.precision]
