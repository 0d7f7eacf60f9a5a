"""Built-in models, with the sizes that their authors published."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.profile.analytic.architectures import ModelConfig
from penstock.profile.analytic.architectures.decoders import Gpt2Config, LlamaConfig
from penstock.profile.analytic.architectures.encoders import BertConfig, VitConfig
from penstock.profile.analytic.vision import ResnetConfig, VggConfig

Model = ModelConfig | VggConfig | ResnetConfig

BUILTIN: Mapping[str, Model] = MappingProxyType(
    {
        "gpt2": Gpt2Config(),
        "gpt2-medium": Gpt2Config(n_embd=1024, n_layer=24, n_head=16),
        "gpt2-large": Gpt2Config(n_embd=1280, n_layer=36, n_head=20),
        "gpt2-xl": Gpt2Config(n_embd=1600, n_layer=48, n_head=25),
        "llama-3-8b": LlamaConfig(
            vocab_size=128_256,
            hidden_size=4096,
            intermediate_size=14_336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            max_position_embeddings=8192,
        ),
        "llama-3-70b": LlamaConfig(
            vocab_size=128_256,
            hidden_size=8192,
            intermediate_size=28_672,
            num_hidden_layers=80,
            num_attention_heads=64,
            num_key_value_heads=8,
            max_position_embeddings=8192,
        ),
        "bert-large": BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        ),
        "vit-l-16": VitConfig(
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            num_labels=1000,
        ),
        "vgg16": VggConfig(convolutions=(2, 2, 3, 3, 3)),
        "vgg19": VggConfig(convolutions=(2, 2, 4, 4, 4)),
        "resnet50": ResnetConfig(blocks=(3, 4, 6, 3)),
        "resnet152": ResnetConfig(blocks=(3, 8, 36, 3)),
    }
)

BUILTIN_NAMES: tuple[str, ...] = tuple(BUILTIN)
