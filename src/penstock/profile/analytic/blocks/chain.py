"""Chains of layers: the embedding, the halves of every block, and the head."""

from collections.abc import Mapping, Sequence

from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.model_parts import Batch, Design, Layer, Part
from penstock.profile.analytic.operations import ID_BYTES, Operation, lookup

VOCABULARY_MULTIPLE = 128
"""GPUs that share a table have a multiple of this many rows of it, as in Megatron."""
Half = tuple[str, str]
"""The name of a layer inside its block, and the key of its part."""


def uniform_halves(blocks: int) -> list[tuple[Half, ...]]:
    """Return the layers of identical blocks: attention and MLP."""
    return [(("attn", "attn"), ("mlp", "mlp"))] * blocks


def windowed_halves(is_windowed: Sequence[bool]) -> list[tuple[Half, ...]]:
    """Return the layers of blocks of which some have a sliding window, whose part is "attn.window"."""
    return [(("attn", "attn.window" if windowed else "attn"), ("mlp", "mlp")) for windowed in is_windowed]


def stack(prefix: str, blocks: Sequence[tuple[Half, ...]]) -> list[Layer]:
    """Return the layers of numbered blocks. A half without a name is the whole block.

    >>> [layer.name for layer in stack("block", [(("attn", "attn"), ("mlp", "mlp"))])]
    ['block.0.attn', 'block.0.mlp']
    """
    return [
        Layer(name=f"{prefix}.{number}.{name}" if name else f"{prefix}.{number}", part=part)
        for number, block in enumerate(blocks)
        for name, part in block
    ]


def split_vocabulary(vocabulary: int, batch: Batch) -> int:
    """Return the rows of the table that one GPU has: all, or its part of a table padded to whole blocks of rows.

    >>> from penstock.profile.recipe import Recipe
    >>> split_vocabulary(50257, Batch(micro_batch_size=1, sequence=1, recipe=Recipe(tensor_parallel=2)))
    25216
    """
    count = batch.recipe.tensor_parallel
    return vocabulary if count == 1 else -(-vocabulary // (VOCABULARY_MULTIPLE * count)) * VOCABULARY_MULTIPLE


def token_embedding(batch: Batch, vocabulary: int, hidden: int) -> Operation:
    """The lookup of token ids in a table."""
    table_rows = split_vocabulary(vocabulary, batch)
    return lookup("tokens", batch.tokens, table_rows, hidden, element_bytes=batch.element_bytes)


def causal_chain(
    block: Block,
    batch: Batch,
    *,
    embedding: tuple[Operation, ...],
    parts: Mapping[str, Part],
    blocks: Sequence[tuple[Half, ...]],
    head: tuple[Operation, ...],
    input_bytes: int | None = None,
    tied: int = 0,
) -> Design:
    """Return the design of a model with one stack of blocks.

    Args:
        block: The sizes of the blocks.
        batch: The dimensions of the micro-batch.
        embedding: The operations of the first layer.
        parts: The parts of the blocks.
        blocks: The layers of every block.
        head: The operations of the last layer.
        input_bytes: Bytes of the model's input (default: one id for every token).
        tied: Parameters of the table that the first and the last layer share.
    """
    whole = {
        "embedding": Part(
            operations=(*embedding, *block.exit(batch)), cut_bytes=block.stream_bytes(batch), takes_data=True
        ),
        **{key: part for key, part in parts.items() if any(key == used for half in blocks for _, used in half)},
        # Nothing crosses a cut after the loss.
        "head": Part(operations=head, cut_bytes=0),
    }
    chain = (Layer(name="embedding", part="embedding"), *stack("block", blocks), Layer(name="head", part="head"))
    bytes_in = batch.tokens * ID_BYTES if input_bytes is None else input_bytes
    if batch.recipe.tensor_parallel > 1:
        tied = split_vocabulary(tied // block.hidden, batch) * block.hidden
    return Design(parts=whole, chain=chain, input_bytes=bytes_in, tied_parameters=tied)
