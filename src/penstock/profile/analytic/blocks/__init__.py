"""The parts of transformers that several architectures share: halves of a block, experts, heads, chains."""

from penstock.profile.analytic.blocks.block import Block
from penstock.profile.analytic.blocks.chain import (
    Half,
    causal_chain,
    stack,
    token_embedding,
    uniform_halves,
    windowed_halves,
)
from penstock.profile.analytic.blocks.experts import Experts, experts_half
from penstock.profile.analytic.blocks.halves import attention_half, cross_attention_half, mlp_half, parallel_block
from penstock.profile.analytic.blocks.heads import Task, causal_head, classifier
from penstock.profile.analytic.blocks.images import class_token, first_token, patches
from penstock.profile.analytic.blocks.latent_attention import LatentAttention, latent_attention_half

__all__ = [
    "Block",
    "Experts",
    "Half",
    "LatentAttention",
    "Task",
    "attention_half",
    "causal_chain",
    "causal_head",
    "class_token",
    "classifier",
    "cross_attention_half",
    "experts_half",
    "first_token",
    "latent_attention_half",
    "mlp_half",
    "parallel_block",
    "patches",
    "stack",
    "token_embedding",
    "uniform_halves",
    "windowed_halves",
]
