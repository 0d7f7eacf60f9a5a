"""The chain of an encoder and a decoder.

The ids of the decoder are alive in all cuts of the encoder. The encoder's output is alive in all cuts of the decoder:
every cross-attention reads it, and the model returns it.
"""

from collections.abc import Sequence

import msgspec

from penstock.profile.analytic.blocks import Half, stack
from penstock.profile.analytic.model_parts import Design, Layer, Part
from penstock.profile.analytic.operations import Operation

OUTPUT_NOTE = "The encoder's output crosses every cut of the decoder, and every cross-attention counts it as saved."


def encoder_decoder_chain(
    parts: dict[str, Part],
    *,
    encoder: Sequence[tuple[Half, ...]],
    decoder: Sequence[tuple[Half, ...]],
    input_bytes: int,
    tied: int,
    tied_layers: tuple[str, ...],
) -> Design:
    """Return the design. The parts of single layers are keyed by the layer's name."""
    chain = (
        Layer(name="encoder.embedding", part="encoder.embedding"),
        *stack("encoder.block", encoder),
        Layer(name="encoder.norm", part="encoder.norm"),
        Layer(name="decoder.embedding", part="decoder.embedding"),
        *stack("decoder.block", decoder),
        Layer(name="head", part="head"),
    )
    return Design(parts=parts, chain=chain, input_bytes=input_bytes, tied_parameters=tied, tied_layers=tied_layers)


def later_lookup(table: Operation, stream_bytes: int) -> Operation:
    """Return a lookup that is not in the first layer: until W, the gradient of its output is kept."""
    return msgspec.structs.replace(table, pending_bytes=table.pending_bytes + stream_bytes)
