"""The structure of a model: the operations of its layers, before they are priced on a device."""

import msgspec

from penstock.profile.analytic.operations import Kernel, Operation
from penstock.profile.recipe import Recipe


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The dimensions of one micro-batch."""

    micro_batch_size: int
    sequence: int
    """Tokens of a row; 1 for convolutional networks."""
    recipe: Recipe = Recipe()

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation or a parameter."""
        return self.recipe.element_bytes

    @property
    def is_eager(self) -> bool:
        """Whether attention is eager."""
        return self.recipe.attention == "eager"

    @property
    def tokens(self) -> int:
        """Tokens of all rows together."""
        return self.micro_batch_size * self.sequence


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a layer; layers of identical structure share one part."""

    operations: tuple[Operation, ...]
    cut_bytes: int
    takes_data: bool = False
    """The input is data: it has no gradient, so the whole backward is weight gradient."""
    rerun: tuple[Kernel, ...] = ()
    """Kernels of the forward that activation checkpointing runs again before the backward."""
    kept_bytes: int | None = None
    """Saved by the forward with activation checkpointing. None: without it."""

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(operation.parameters for operation in self.operations)

    @property
    def active_parameters(self) -> int:
        """Number of parameters that one token uses: experts that it is not routed to do not count."""
        return self.parameters - sum(operation.inactive_parameters for operation in self.operations)

    @property
    def saved_bytes(self) -> int:
        """Bytes saved by the forward for the backward."""
        return self.all_saved_bytes if self.kept_bytes is None else self.kept_bytes

    @property
    def all_saved_bytes(self) -> int:
        """Bytes that the operations save without activation checkpointing."""
        return sum(operation.saved_bytes for operation in self.operations)

    @property
    def recomputed_bytes(self) -> int:
        """Bytes that activation checkpointing computes again for the backward."""
        return self.all_saved_bytes - self.saved_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes kept after the input gradient for the weight gradient."""
        if self.takes_data:
            # No input gradient runs before W, which needs all saved tensors and the incoming gradient.
            return self.saved_bytes + self.cut_bytes
        return sum(operation.pending_bytes for operation in self.operations)


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of the chain: its name and the part that describes it."""

    name: str
    part: str


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """A model for one micro-batch size: its parts, and the chain of layers that use them."""

    parts: dict[str, Part]
    chain: tuple[Layer, ...]
    input_bytes: int
    tied_parameters: int = 0
    """Parameters of the table that `tied_layers` share."""
    tied_layers: tuple[str, ...] = ()
    """Names of the layers that share it. Empty: the first and the last."""
