"""The sizes and variants of a family's blocks."""

from typing import Literal

import msgspec

from penstock.errors import InputError
from penstock.profile.analytic.model_parts import Batch
from penstock.profile.analytic.operations import Operation, all_reduce, layer_norm, rms_norm

NormKind = Literal["layer", "layer without parameters", "rms"]


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes and variants of a family's blocks."""

    hidden: int
    heads: int
    key_value_heads: int
    head_size: int
    inner: int
    causal: bool
    joint_qkv: bool
    """One product for queries, keys and values, or three that share their input."""
    norm_kind: NormKind = "layer"
    rotary: bool = False
    gated: bool = False
    """The MLP is down(activation(gate(x)) * up(x)), otherwise down(activation(up(x)))."""
    joint_gate: bool = False
    """One product for gate and up."""
    activation: str = "gelu"
    qkv_bias: bool = True
    key_bias: bool | None = None
    """None: as `qkv_bias`."""
    projection_bias: bool = True
    mlp_bias: bool = True
    query_key_norm: bool = False
    """RMSNorm of every head of queries and keys."""
    branch_norms: bool = False
    """Another norm after the projection and after the MLP, before the residual."""
    score_bias: bool = False
    """A tensor of heads x queries x keys is added to the scores."""
    sinks: bool = False

    def split(self, count: int) -> "Block":
        """Return what one of several GPUs has of the block: its part of the heads and of the MLP.

        Raises:
            InputError: The heads or the inner width are not divisible.
        """
        for what, size in (("heads", self.heads), ("heads of keys", self.key_value_heads), ("inner width", self.inner)):
            if size % count:
                raise InputError(
                    f"{what} ({size:,}) must be divisible by the tensor-parallel degree ({count})",
                    where="tensor_parallel",
                    hint="Choose another degree.",
                )
        return msgspec.structs.replace(
            self,
            heads=self.heads // count,
            key_value_heads=self.key_value_heads // count,
            inner=self.inner // count,
        )

    def entry(self, batch: Batch) -> tuple[Operation, ...]:
        """The all-reduce of the gradients of a split half's input, if GPUs share the layer."""
        return self._reduction("input gradients", batch, forward=False)

    def exit(self, batch: Batch) -> tuple[Operation, ...]:
        """The all-reduce of a split half's output, if GPUs share the layer."""
        return self._reduction("outputs", batch, forward=True)

    def _reduction(self, name: str, batch: Batch, *, forward: bool) -> tuple[Operation, ...]:
        if batch.recipe.tensor_parallel == 1:
            return ()
        return (all_reduce(name, self.stream_bytes(batch), forward=forward, input_grad=not forward),)

    def norm(self, name: str, batch: Batch) -> Operation:
        """Return the family's norm over the residual stream."""
        if self.norm_kind == "rms":
            return rms_norm(name, batch.tokens, self.hidden, element_bytes=batch.element_bytes)
        affine = self.norm_kind == "layer"
        return layer_norm(name, batch.tokens, self.hidden, element_bytes=batch.element_bytes, affine=affine)

    def stream_bytes(self, batch: Batch) -> int:
        """Return the bytes of the residual stream."""
        return batch.tokens * self.hidden * batch.element_bytes
