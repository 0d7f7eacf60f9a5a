"""Classes of transformers as chains of blocks, against the model to the bit: rows, lengths, paddings, evaluation."""

from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.model.block_finder import trace_blocks
from penstock.model.block_forward import training_only
from penstock.model.blocks import call_model
from penstock.model.state import preserve_state
from penstock.model.trees import first_difference

transformers = pytest.importorskip("transformers")

WORDS = 31
SMALL = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
INNER = {"intermediate_size": 24, "max_position_embeddings": 24}
GROUPED = {**SMALL, **INNER, "num_key_value_heads": 1, "pad_token_id": 0}
TWO_STACKS = {
    "vocab_size": WORDS,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
IMAGES = {**VISION, "image_size": 8, "patch_size": 4}

DECODERS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": GROUPED,
    "Gemma2ForCausalLM": {**GROUPED, "head_dim": 8, "sliding_window": 4},
    "GPT2LMHeadModel": {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
    "MixtralForCausalLM": {**GROUPED, "num_local_experts": 3},
    "MambaForCausalLM": {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "RoFormerForCausalLM": {**SMALL, **INNER, "embedding_size": 16},
    "BertForMaskedLM": {**SMALL, **INNER},
    "SqueezeBertForMaskedLM": {**SMALL, **INNER, "embedding_size": 16, "q_groups": 2, "k_groups": 2, "v_groups": 2},
    "DebertaV2ForMaskedLM": {**SMALL, **INNER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
}
ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "T5ForConditionalGeneration": {**T5, "pad_token_id": 0, "decoder_start_token_id": 0},
    "BartForConditionalGeneration": TWO_STACKS,
    "PegasusForConditionalGeneration": TWO_STACKS,
}
VISIONS: dict[str, dict[str, Any]] = {
    "ViTForImageClassification": IMAGES,
    "ResNetForImageClassification": {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 2]},
}
LLAVA = {"image_token_index": 3, "vision_feature_layer": -1}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def make(name: str, **values: Any) -> Any:
    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    return model_class(model_class.config_class(**values)).train()


def words(rows: int, length: int) -> Tensor:
    return torch.randint(5, WORDS, (rows, length))


def text(rows: int, length: int, padding: int) -> dict[str, Tensor]:
    """Tokens of which the first row has so many of padding on the right; on the left if it is negative."""
    ids = words(rows, length)
    mask = torch.ones_like(ids)
    mask[0, slice(length - padding, None) if padding >= 0 else slice(-padding)] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def require_chain(model: Any, sample: Any, others: list[Any], least_blocks: int = 4) -> None:
    """Run the blocks of the sample on other inputs, in training and evaluation, and compare with the model."""
    blocks = trace_blocks(model, None, sample)
    assert len(blocks) >= least_blocks, [block.name for block in blocks]
    for inputs in others:
        for is_training in (True, False):
            with preserve_state(model), training_only(model), torch.no_grad():
                model.train(is_training)
                expected = call_model(model, inputs)
            with preserve_state(model), torch.no_grad():
                model.train(is_training)
                activations = inputs
                for block in blocks:
                    activations = block.call(activations, inputs)
            assert first_difference(activations, expected) is None


SIZES = ((2, 7, 2), (2, 7, 0), (2, 7, -3), (3, 7, 4), (1, 5, 1), (4, 11, 0))


@pytest.mark.parametrize("name", DECODERS)
def test_one_stack(name: str) -> None:
    require_chain(make(name, **DECODERS[name]), text(2, 7, 2), [text(*size) for size in SIZES])


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoder(name: str) -> None:
    def batch(rows: int, length: int, padding: int) -> dict[str, Tensor]:
        return {**text(rows, length, padding), "labels": words(rows, length - 2)}

    model = make(name, **ENCODER_DECODERS[name])
    require_chain(model, batch(2, 7, 2), [batch(*size) for size in SIZES], least_blocks=6)


@pytest.mark.parametrize("name", VISIONS)
def test_images(name: str) -> None:
    def batch(rows: int) -> dict[str, Tensor]:
        return {"pixel_values": torch.randn(rows, 3, 8, 8), "labels": torch.arange(rows) % 2}

    require_chain(make(name, **VISIONS[name]), batch(3), [batch(rows) for rows in (2, 3, 5)])


def test_image_tokens_at_other_places() -> None:
    """The places of the image's tokens in the text are data of the inputs."""
    vision = {"model_type": "clip_vision_model", **IMAGES, "projection_dim": 16}
    language = {"model_type": "llama", **GROUPED}
    model = make("LlavaForConditionalGeneration", text_config=language, vision_config=vision, **LLAVA)

    def batch(rows: int, first: int) -> dict[str, Tensor]:
        inputs = text(rows, 9, 0)
        for row in range(rows):
            inputs["input_ids"][row, first + row % 2 : first + row % 2 + 4] = LLAVA["image_token_index"]
        return {**inputs, "pixel_values": torch.randn(rows, 3, 8, 8)}

    require_chain(model, batch(2, 0), [batch(2, 0), batch(2, 3), batch(3, 1), batch(4, 2)])
