"""`MessageModel`: how a training engine moves messages between devices."""

import math
from typing import Annotated, Literal

import msgspec


class MessageModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a device waits for its own messages.

    Attributes:
        receive: "posted": a receive only names a buffer, and the device goes on. "blocking": the device receives right
            before it needs the tensor, and waits there until it has arrived.
        send: "buffered": the device goes on while the message is sent. "rendezvous": it waits until the message has
            arrived, so also until the receiver has come to its receive.
        together: Whether the sends and receives between two passes start together, and the device waits for all of
            them. Otherwise they follow each other: gradients before activations, sends before receives.
        eager_bytes: Messages of at most this size are sent without waiting for the receiver.
        overlaps_chunks: Whether the engine posts and buffers if devices have several stages.

    Raises:
        ValueError: Sends wait while receives are posted, or `eager_bytes` is not finite.

    Example:
        >>> MessageModel(receive="blocking", send="rendezvous").is_overlapped
        False
    """

    receive: Literal["posted", "blocking"] = "posted"
    send: Literal["buffered", "rendezvous"] = "buffered"
    together: bool = False
    eager_bytes: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    overlaps_chunks: bool = False

    def __post_init__(self) -> None:
        if self.receive == "posted" and self.send == "rendezvous":
            raise ValueError('sends with "rendezvous" need "blocking" receives')
        if not math.isfinite(self.eager_bytes):
            raise ValueError("eager_bytes must be finite")

    @property
    def is_overlapped(self) -> bool:
        """Whether no device waits for a message before it needs it."""
        return self.receive == "posted"

    @property
    def sentence(self) -> str:
        """What devices wait for, in one sentence.

        >>> MessageModel(receive="blocking").sentence
        'A device waits in each receive until the message has arrived; sends overlap with compute.'
        """
        if self.is_overlapped:
            return "Transfers overlap with compute: receives are posted early, sends do not wait."
        where = "for all messages between two passes together" if self.together else "in each receive"
        sends = "sends overlap with compute"
        if self.send == "rendezvous":
            above = f" of more than {self.eager_bytes:,.0f} bytes" if self.eager_bytes else ""
            sends = f"a send{above} waits until the other device has received it"
        several = " With several stages per device, transfers overlap." if self.overlaps_chunks else ""
        received = where if self.together else f"{where} until the message has arrived"
        return f"A device waits {received}; {sends}.{several}"


OVERLAPPED = MessageModel()
"""Penstock's own messages."""
