"""The layers of transformers: embedding, blocks in two halves, and norm, head and loss at the end."""

from penstock.profile.analytic.configs import BertConfig, Gpt2Config, LlamaConfig, VitConfig
from penstock.profile.analytic.convolution import convolution, tensor_bytes
from penstock.profile.analytic.model_parts import Batch, Design, Layer, Part
from penstock.profile.analytic.operations import (
    ID_BYTES,
    Kernel,
    Operation,
    accumulate,
    activation,
    cross_entropy,
    layer_norm,
    linear,
    lookup,
    pointwise,
    position_table,
)
from penstock.profile.analytic.transformer_layer import Block, attention_half, mlp_half


def gpt2_design(config: Gpt2Config, batch: Batch) -> Design:
    """GPT-2 with its language-model head."""
    hidden, size = config.n_embd, batch.element_bytes
    block = Block(
        hidden=hidden,
        heads=config.n_head,
        key_value_heads=config.n_head,
        head_size=hidden // config.n_head,
        inner=config.n_inner or 4 * hidden,
        causal=True,
        joint_qkv=True,
    )
    embedding = (
        lookup("tokens", batch.tokens, config.vocab_size, hidden, element_bytes=size),
        position_table(
            "positions", batch.micro_batch_size, batch.sequence, config.n_positions, hidden, element_bytes=size
        ),
    )
    head = (block.norm("norm", batch), *_classifier("head", batch.tokens, hidden, config.vocab_size, batch, bias=False))
    tied = config.vocab_size * hidden if config.tie_word_embeddings else 0
    return _assemble(block, batch, config.n_layer, embedding, head, input_bytes=batch.tokens * ID_BYTES, tied=tied)


def llama_design(config: LlamaConfig, batch: Batch) -> Design:
    """Llama with its language-model head."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    block = Block(
        hidden=hidden,
        heads=heads,
        key_value_heads=config.num_key_value_heads or heads,
        head_size=config.head_dim or hidden // heads,
        inner=config.intermediate_size,
        causal=True,
        joint_qkv=False,
        gated=True,
        qkv_bias=config.attention_bias,
        projection_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )
    embedding = (lookup("tokens", batch.tokens, config.vocab_size, hidden, element_bytes=batch.element_bytes),)
    head = (block.norm("norm", batch), *_classifier("head", batch.tokens, hidden, config.vocab_size, batch, bias=False))
    tied = config.vocab_size * hidden if config.tie_word_embeddings else 0
    layers, input_bytes = config.num_hidden_layers, batch.tokens * ID_BYTES
    return _assemble(block, batch, layers, embedding, head, input_bytes=input_bytes, tied=tied)


def bert_design(config: BertConfig, batch: Batch) -> Design:
    """BERT with the masked-word head on every token, and the pooler with the next-sentence head on the first."""
    hidden, size = config.hidden_size, batch.element_bytes
    block = _encoder_block(config, joint_qkv=False)
    stream_bytes = block.stream_bytes(batch)
    embedding = (
        lookup("tokens", batch.tokens, config.vocab_size, hidden, element_bytes=size),
        lookup("types", batch.tokens, config.type_vocab_size, hidden, element_bytes=size),
        pointwise("sum", stream_bytes, forward=(3,), input_grad=()),
        position_table(
            "positions",
            batch.micro_batch_size,
            batch.sequence,
            config.max_position_embeddings,
            hidden,
            element_bytes=size,
        ),
        layer_norm("norm", batch.tokens, hidden, element_bytes=size),
    )
    head = (
        # The pooler's input is the first token of the stream that "transform" saves; the next product saves the
        # output of tanh.
        linear("pooler", batch.micro_batch_size, hidden, hidden, bias=True, element_bytes=size, keeps_input=False),
        pointwise("tanh", batch.micro_batch_size * hidden * size, forward=(2,), input_grad=(3,)),
        *_classifier("next sentence", batch.micro_batch_size, hidden, 2, batch, bias=True),
        # The pooler's gradient is scattered into a zeroed stream and added to the gradient of the other head.
        pointwise("fork", stream_bytes, forward=(), input_grad=(1, 3)),
        linear("transform", batch.tokens, hidden, hidden, bias=True, element_bytes=size),
        activation("gelu", stream_bytes),
        layer_norm("norm", batch.tokens, hidden, element_bytes=size),
        *_classifier("masked words", batch.tokens, hidden, config.vocab_size, batch, bias=True),
    )
    tied = config.vocab_size * hidden if config.tie_word_embeddings else 0
    # Two ids for every token: its word and its sentence.
    input_bytes = 2 * batch.tokens * ID_BYTES
    return _assemble(block, batch, config.num_hidden_layers, embedding, head, input_bytes=input_bytes, tied=tied)


def vit_sequence(config: VitConfig) -> int:
    """Return the tokens of an image: its complete patches and the class token.

    >>> vit_sequence(VitConfig())
    197
    """
    return (config.image_size // config.patch_size) ** 2 + 1


def vit_design(config: VitConfig, batch: Batch) -> Design:
    """A vision transformer with a linear head on the class token."""
    hidden, size = config.hidden_size, batch.element_bytes
    block = _encoder_block(config, joint_qkv=True, qkv_bias=config.qkv_bias)
    embedding = (
        convolution(
            "patches",
            batch.micro_batch_size,
            (config.num_channels, hidden),
            config.patch_size,
            (config.image_size, config.image_size // config.patch_size),
            bias=True,
            element_bytes=size,
            takes_data=True,
        ),
        _class_token(block.stream_bytes(batch), hidden, element_bytes=size),
        position_table("positions", batch.micro_batch_size, batch.sequence, batch.sequence, hidden, element_bytes=size),
    )
    head = (
        block.norm("norm", batch),
        _first_token(block.stream_bytes(batch)),
        *_classifier("head", batch.micro_batch_size, hidden, config.num_labels, batch, bias=True, keeps_input=False),
    )
    input_bytes = tensor_bytes(batch.micro_batch_size, config.num_channels, config.image_size, size)
    return _assemble(block, batch, config.num_hidden_layers, embedding, head, input_bytes=input_bytes)


def _encoder_block(config: BertConfig | VitConfig, *, joint_qkv: bool, qkv_bias: bool = True) -> Block:
    return Block(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        key_value_heads=config.num_attention_heads,
        head_size=config.hidden_size // config.num_attention_heads,
        inner=config.intermediate_size,
        causal=False,
        joint_qkv=joint_qkv,
        qkv_bias=qkv_bias,
    )


def _class_token(stream_bytes: int, hidden: int, *, element_bytes: int) -> Operation:
    # Concatenated to the patches by a full copy; the backward splits the gradient by another copy.
    copy = Kernel(2 * stream_bytes)
    weight_grad = (accumulate(hidden, element_bytes),)
    return Operation(
        name="class token", parameters=hidden, forward=(copy,), input_grad=(copy,), weight_grad=weight_grad
    )


def _first_token(stream_bytes: int) -> Operation:
    # A view: the head that saves it keeps the whole stream alive. The backward scatters the gradient into zeros.
    return Operation(
        name="first token",
        input_grad=(Kernel(stream_bytes),),
        saved_bytes=stream_bytes,
        pending_bytes=stream_bytes,
    )


def _classifier(
    name: str, tokens: int, hidden: int, classes: int, batch: Batch, *, bias: bool, keeps_input: bool = True
) -> tuple[Operation, ...]:
    size = batch.element_bytes
    return (
        linear(name, tokens, hidden, classes, bias=bias, element_bytes=size, keeps_input=keeps_input),
        cross_entropy(f"{name} loss", tokens, classes, element_bytes=size),
    )


def _assemble(
    block: Block,
    batch: Batch,
    layers: int,
    embedding: tuple[Operation, ...],
    head: tuple[Operation, ...],
    *,
    input_bytes: int,
    tied: int = 0,
) -> Design:
    parts = {
        "embedding": Part(operations=embedding, cut_bytes=block.stream_bytes(batch), takes_data=True),
        "attn": attention_half(block, batch),
        "mlp": mlp_half(block, batch),
        # Nothing crosses a cut after the loss.
        "head": Part(operations=head, cut_bytes=0),
    }
    halves = (Layer(name=f"block.{layer}.{half}", part=half) for layer in range(layers) for half in ("attn", "mlp"))
    chain = (Layer(name="embedding", part="embedding"), *halves, Layer(name="head", part="head"))
    return Design(parts=parts, chain=chain, input_bytes=input_bytes, tied_parameters=tied)
