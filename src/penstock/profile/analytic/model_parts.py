"""A model taken apart: what its units are made of, before anything is priced."""

import msgspec

from penstock.profile.analytic.operations import Operation


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one micro-batch is made of."""

    micro_batch_size: int
    sequence: int
    """Tokens of a row; 1 for convolutional networks."""
    element_bytes: int

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return self.micro_batch_size * self.sequence


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Operations that make up a unit; units that are built alike share one part."""

    operations: tuple[Operation, ...]
    cut_bytes: int
    takes_data: bool = False
    """The unit's input is data: it has no gradient, and all of its backward is for its weights."""

    @property
    def parameters(self) -> int:
        """Numbers to learn."""
        return sum(operation.parameters for operation in self.operations)

    @property
    def saved_bytes(self) -> int:
        """Bytes kept from the forward for the backward."""
        return sum(operation.saved_bytes for operation in self.operations)

    @property
    def pending_bytes(self) -> int:
        """Bytes kept after the input gradient for the weight gradient."""
        if self.takes_data:
            # No input gradient runs before: W still needs all that was saved, and the gradient that came in.
            return self.saved_bytes + self.cut_bytes
        return sum(operation.pending_bytes for operation in self.operations)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of the chain: its name, and the part that it is made of."""

    name: str
    part: str


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """A model for one batch size: its different parts, and the chain that repeats them."""

    parts: dict[str, Part]
    chain: tuple[Place, ...]
    input_bytes: int
    tied_parameters: int = 0
    """Numbers of the table that the first and the last unit share."""
