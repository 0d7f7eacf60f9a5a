"""Operations and bytes against known formulas and manual counts."""

import msgspec
import pytest

from penstock.profile.analytic import analytic_profile
from penstock.profile.analytic.architectures.decoders import Gpt2Config, LlamaConfig
from penstock.profile.analytic.architectures.encoders import VitConfig
from penstock.profile.analytic.attention import attention
from penstock.profile.analytic.blocks import Block, attention_half, mlp_half
from penstock.profile.analytic.builtin import BUILTIN
from penstock.profile.analytic.convolution import convolution, max_pool
from penstock.profile.analytic.model_parts import Batch, Design, Part
from penstock.profile.analytic.operations import Kernel, cross_entropy, linear, lookup
from penstock.profile.analytic.vision import ResnetConfig, VggConfig, resnet_design, vgg_design
from penstock.profile.types import Unit

ROWS, SEQUENCE, HIDDEN, HEADS = 4, 1024, 1600, 25
BATCH = Batch(micro_batch_size=ROWS, sequence=SEQUENCE)
STREAM = ROWS * SEQUENCE * HIDDEN
BLOCK = Block(
    hidden=HIDDEN,
    heads=HEADS,
    key_value_heads=HEADS,
    head_size=HIDDEN // HEADS,
    inner=4 * HIDDEN,
    causal=True,
    joint_qkv=True,
)
IMAGE = Batch(micro_batch_size=1, sequence=1)


def forward_flops(part: Part) -> int:
    return sum(kernel.flops for operation in part.operations for kernel in operation.forward)


def backward_flops(part: Part) -> int:
    return sum(kernel.flops for item in part.operations for kernel in item.input_grad + item.weight_grad)


def forward_macs(design: Design) -> float:
    return sum(forward_flops(design.parts[index.part]) for index in design.chain) / 2


def unit(name: str, index: int, *, rows: int = 1, sequence: int | None = None) -> Unit:
    return analytic_profile(name, kinds=["T4"], micro_batch_size=rows, sequence=sequence).units[index]


def test_forward_of_a_gpt2_block() -> None:
    # Products with weights: 24 b s h^2. Attention: 4 b s^2 h, halved by the causal mask.
    half, other = attention_half(BLOCK, BATCH), mlp_half(BLOCK, BATCH)
    expected = 24 * ROWS * SEQUENCE * HIDDEN**2 + 4 * ROWS * SEQUENCE**2 * HIDDEN // 2
    assert forward_flops(half) + forward_flops(other) == expected
    assert forward_flops(other) == 16 * ROWS * SEQUENCE * HIDDEN**2


def test_backward_of_a_gpt2_block() -> None:
    # Twice the products with weights; attention's two products become five.
    half, other = attention_half(BLOCK, BATCH), mlp_half(BLOCK, BATCH)
    expected = 48 * ROWS * SEQUENCE * HIDDEN**2 + 10 * ROWS * SEQUENCE**2 * HIDDEN // 2
    assert backward_flops(half) + backward_flops(other) == expected


def test_saved_bytes_of_a_gpt2_block() -> None:
    # The known 34 s b h without the two dropout masks of s b h: 12 for attention, 20 for the MLP. Beyond it: for each
    # norm two fp32 numbers a token, and the fp32 log-sum-exp of every head.
    tokens = ROWS * SEQUENCE
    assert attention_half(BLOCK, BATCH).saved_bytes == 12 * STREAM + 8 * tokens + 4 * tokens * HEADS
    assert mlp_half(BLOCK, BATCH).saved_bytes == 20 * STREAM + 8 * tokens


def test_pending_bytes_of_a_gpt2_block() -> None:
    # The known 32 s b h of the linear layers (inputs and output gradients): 12 + 20. Beyond it: each norm's input,
    # output gradient and two fp32 numbers a token.
    tokens = ROWS * SEQUENCE
    norm = 4 * STREAM + 8 * tokens
    assert attention_half(BLOCK, BATCH).pending_bytes == 12 * STREAM + norm
    assert mlp_half(BLOCK, BATCH).pending_bytes == 20 * STREAM + norm


def test_the_cut_is_the_residual_stream() -> None:
    units = analytic_profile("gpt2-xl", kinds=["T4"], micro_batch_size=ROWS, sequence=SEQUENCE).units
    assert {item.sizes[0].cut_bytes for item in units[:-1]} == {2 * STREAM}
    assert units[-1].sizes[0].cut_bytes == 0


def test_three_products_for_q_k_and_v_cost_what_one_does() -> None:
    apart = attention_half(msgspec.structs.replace(BLOCK, joint_qkv=False), BATCH)
    joint = attention_half(BLOCK, BATCH)
    assert forward_flops(apart) == forward_flops(joint)
    assert (apart.saved_bytes, apart.pending_bytes) == (joint.saved_bytes, joint.pending_bytes)
    assert apart.parameters == joint.parameters


def test_llama_block() -> None:
    config = LlamaConfig(
        hidden_size=64, intermediate_size=160, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=1
    )
    batch = Batch(micro_batch_size=2, sequence=16)
    design = config.design(batch)
    tokens = 32
    # q and o: 64 x 64; k and v: 64 x 16. Attention: 4 b s^2 h over 2.
    assert forward_flops(design.parts["attn"]) == 2 * tokens * (2 * 64 * 64 + 2 * 64 * 16) + 2 * 2 * 16 * 16 * 64
    assert forward_flops(design.parts["mlp"]) == 2 * tokens * 3 * 64 * 160
    # Kept: the stream, the norm's output, q, k, v, attention's output; one fp32 number a token; log-sum-exp of 8 heads.
    assert design.parts["attn"].saved_bytes == 2 * tokens * (64 + 64 + 64 + 16 + 16 + 64) + 4 * tokens + 4 * tokens * 8
    # Kept: the stream, the norm's output; gate, its SiLU, up, and their product.
    assert design.parts["mlp"].saved_bytes == 2 * tokens * (2 * 64 + 4 * 160) + 4 * tokens
    # W needs: norm (input, gradient), gate and up (one input, two gradients), down (input, gradient).
    assert design.parts["mlp"].pending_bytes == 2 * tokens * (2 * 64 + 64 + 2 * 160 + 160 + 64) + 4 * tokens


def test_gpt2_embedding_and_head() -> None:
    config = Gpt2Config(vocab_size=1000, n_positions=32, n_embd=64, n_layer=1, n_head=4)
    design = config.design(Batch(micro_batch_size=2, sequence=16))
    embedding, head = design.parts["embedding"], design.parts["head"]
    assert embedding.parameters == (1000 + 32) * 64
    assert forward_flops(embedding) == backward_flops(embedding) == 0
    # Nothing but ids is kept; while W waits, the gradient of the output is kept too.
    assert (embedding.saved_bytes, embedding.pending_bytes) == (32 * 8, 32 * 8 + 2 * 32 * 64)
    assert forward_flops(head) == 2 * 32 * 64 * 1000
    # Stream and norm's output, two fp32 numbers a token, fp32 log-probabilities, 8-byte labels.
    assert head.saved_bytes == 2 * 2 * 32 * 64 + 8 * 32 + 4 * 32 * 1000 + 8 * 32
    assert design.tied_parameters == 64_000


@pytest.mark.parametrize(
    ("name", "macs"),
    [("resnet50", 4_089_184_256), ("resnet152", 11_513_626_624), ("vgg16", 15_470_264_320), ("vgg19", 19_632_062_464)],
)
def test_forward_of_vision_models(name: str, macs: int) -> None:
    # torchvision publishes 4.09, 11.51, 15.47 and 19.63 thousand million multiply-adds an image.
    model = BUILTIN[name]
    if isinstance(model, ResnetConfig):
        assert forward_macs(resnet_design(model, IMAGE)) == macs
    else:
        assert isinstance(model, VggConfig)
        assert forward_macs(vgg_design(model, IMAGE)) == macs


def test_forward_of_vit_l_16() -> None:
    # torchvision publishes 61.55 thousand million multiply-adds an image.
    model = BUILTIN["vit-l-16"]
    assert isinstance(model, VitConfig)
    macs = forward_macs(model.design(Batch(micro_batch_size=1, sequence=197)))
    assert macs == pytest.approx(61.55e9, rel=1e-4)


def test_vgg_units() -> None:
    # conv1_1: keeps the image; its output crosses. W is all of its backward: the output's gradient waits with it.
    first = unit("vgg16", 0).sizes[0]
    image, maps = 3 * 224 * 224 * 2, 64 * 224 * 224 * 2
    assert (first.cut_bytes, first.saved_bytes, first.pending_bytes) == (maps, image, image + maps)
    # conv1_2: keeps its input, the pool's input and the places of the maxima; a quarter crosses.
    second = unit("vgg16", 1).sizes[0]
    assert (second.cut_bytes, second.saved_bytes) == (maps // 4, maps + maps + 64 * 112 * 112 * 8)
    # W needs the convolution's input and the gradient of its output.
    assert second.pending_bytes == 2 * maps


def test_resnet_block() -> None:
    # layer1.1 at 56 x 56: 256 -> 64 -> 64 -> 256. Kept: the three convolutions' inputs and outputs (the norms'
    # inputs), and two fp32 numbers a channel of each norm.
    block = unit("resnet50", 2)
    pixels = 56 * 56
    kept = 2 * pixels * (256 + 64 + 64 + 64 + 64 + 256) + 8 * (64 + 64 + 256)
    assert (block.sizes[0].cut_bytes, block.sizes[0].saved_bytes) == (2 * pixels * 256, kept)
    assert block.sizes[0].pending_bytes == kept
    assert block.parameter_bytes == 2 * (256 * 64 + 9 * 64 * 64 + 64 * 256 + 2 * (64 + 64 + 256))
    # layer1.0 adds a convolution on the shortcut: 64 -> 256, of the same kept input.
    first = unit("resnet50", 1)
    assert first.parameter_bytes == 2 * (64 * 64 + 9 * 64 * 64 + 2 * 64 * 256 + 2 * (64 + 64 + 256 + 256))
    assert first.sizes[0].saved_bytes == 2 * pixels * (64 + 64 + 64 + 64 + 64 + 2 * 256) + 8 * (64 + 64 + 256 + 256)


def test_operations_one_by_one() -> None:
    product = linear("x", 10, 3, 5, bias=True, element_bytes=2)
    # 10 x 3 in, 3 x 5 weight, 10 x 5 out.
    counts = [(kernel.moved_bytes, kernel.flops) for kernel in (*product.forward, *product.input_grad)]
    assert counts == [(2 * (30 + 15 + 50), 2 * 10 * 15)] * 2
    assert [kernel.moved_bytes for kernel in product.weight_grad] == [190, 90, 110, 30]
    shapes = [kernel.product for kernel in (*product.forward, *product.input_grad, product.weight_grad[0])]
    assert [(item.rows, item.columns, item.depth) for item in shapes if item] == [(10, 5, 3), (10, 3, 5), (3, 5, 10)]
    assert (product.parameters, product.saved_bytes, product.pending_bytes) == (20, 60, 160)
    picked = lookup("x", 10, 100, 4, element_bytes=2)
    assert (picked.input_grad, picked.parameters) == ((), 400)
    full = attention("x", 2, 8, heads=4, key_value_heads=2, head_size=16, causal=False, element_bytes=2)
    # q and out: 2 x 8 x 64 numbers; k and v: half of that each; log-sum-exp: 2 x 8 x 4 in fp32.
    assert full.forward == (Kernel(2 * (1024 + 512 + 512 + 1024) + 256, 4 * 2 * 64 * 64),)
    assert full.saved_bytes == 2 * 2048 + 256
    loss = cross_entropy("x", 10, 7, element_bytes=4)
    assert loss.forward[0] == Kernel(2 * 4 * 70)
    assert loss.saved_bytes == 4 * 70 + 80
    assert len(cross_entropy("x", 10, 7, element_bytes=2).forward) == len(loss.forward) + 1


def test_convolution_and_pool() -> None:
    # 3 -> 8 maps, 3 x 3, from 10 x 10 to 5 x 5, two images.
    item = convolution("x", 2, (3, 8), 3, (10, 5), bias=False, element_bytes=2, takes_data=True)
    assert item.forward == (Kernel(2 * (600 + 400 + 216), 2 * 2 * 25 * 216),)
    assert (item.input_grad, item.saved_bytes, item.pending_bytes) == ((), 1200, 2000)
    pool = max_pool("x", 2, 3, (10, 5), element_bytes=2)
    assert pool.saved_bytes == 1200 + 2 * 3 * 25 * 8
