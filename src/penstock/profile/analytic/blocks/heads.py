"""The ends of models: the final norm, the head of a task, and the loss."""

from typing import Literal

from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.blocks.chain import split_vocabulary
from penstock.profile.analytic.model_parts import Batch
from penstock.profile.analytic.operations import FP32_BYTES, Operation, cross_entropy, linear, pointwise

Task = Literal["language model", "row classes", "token classes", "pre-training", "images"]


def causal_head(
    task: Task,
    block: Block,
    batch: Batch,
    *,
    vocabulary: int,
    labels: int,
    final_norm: bool = True,
    capped: bool = False,
) -> tuple[Operation, ...]:
    """The final norm and the head of a decoder: tokens of the vocabulary, or classes of rows or tokens.

    Args:
        task: The task of the head.
        block: The sizes of the blocks.
        batch: The dimensions of the micro-batch.
        vocabulary: Tokens of the vocabulary.
        labels: Classes of a classifier.
        final_norm: The last block is followed by a norm.
        capped: The logits of the language model pass through a soft cap.
    """
    size, hidden = batch.element_bytes, block.hidden
    norm = (block.norm("norm", batch),) if final_norm else ()
    if task == "row classes":
        # Every token is scored; the loss takes the last one of each row.
        return (
            *norm,
            linear("score", batch.tokens, hidden, labels, bias=False, element_bytes=size),
            cross_entropy("score loss", batch.micro_batch_size, labels, element_bytes=size),
        )
    if task == "token classes":
        return (*norm, *classifier("classifier", batch.tokens, hidden, labels, batch, bias=True))
    if batch.recipe.tensor_parallel > 1:
        vocabulary = split_vocabulary(vocabulary, batch)
    logits, loss = classifier("head", batch.tokens, hidden, vocabulary, batch, bias=False)
    cap = (pointwise("soft cap", batch.tokens * vocabulary * size, forward=(2,), input_grad=(3,), saved=1),)
    return (*norm, *block.entry(batch), logits, *(cap if capped else ()), loss)


def classifier(
    name: str, tokens: int, hidden: int, classes: int, batch: Batch, *, bias: bool, keeps_input: bool = True
) -> tuple[Operation, Operation]:
    """A product with one output for every class, and its cross-entropy."""
    size = FP32_BYTES if batch.recipe.fp32_head else batch.element_bytes
    product = linear(
        name,
        tokens,
        hidden,
        classes,
        bias=bias,
        element_bytes=size,
        keeps_input=keeps_input,
        role="fp32" if batch.recipe.fp32_head else "weight",
    )
    return product, cross_entropy(f"{name} loss", tokens, classes, element_bytes=size)
