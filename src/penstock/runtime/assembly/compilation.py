"""Phases 1 and 2 of assembly: the layers of the model, and the proved program of the plan. Without other ranks."""

import logging
from dataclasses import dataclass

import torch
from torch import nn

from penstock.model import Block, find_blocks, plain_inputs
from penstock.plan import Plan
from penstock.program.proof import Proof
from penstock.runtime.layout import Layout, check_planned_model, check_replica_sync, compile_plan, make_layout
from penstock.runtime.options import PipelineOptions
from penstock.runtime.state import check_materializable

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validated:
    """Result of phase 1."""

    model: nn.Module
    plan: Plan
    blocks: tuple[Block, ...]
    device: torch.device
    """The device of the model; for a model on the meta device, the one it will be on."""


def validate(model: nn.Module, plan: Plan, options: PipelineOptions) -> Validated:
    """Phase 1: find the layers of the model, and check that they are those of the plan.

    Raises:
        InputError: The model is not a chain of blocks, or nothing fills its tensors on the meta device.
        MismatchError: The plan is for another model.
    """
    check_materializable(model, options.init)
    blocks = find_blocks(model, options.blocks, plain_inputs(options.inputs), torch.device(options.device))
    check_planned_model(plan, blocks, options.profile)
    real = (item.device for block in blocks for item in block.parameters.values() if not item.is_meta)
    return Validated(model, plan, blocks, next(real, torch.device(options.device)))


@dataclass(frozen=True)
class Compiled:
    """Result of phase 2."""

    proof: Proof
    layout: Layout


def compile_program(validated: Validated, options: PipelineOptions) -> Compiled:
    """Phase 2: lower and prove the program of the plan, and lay the plan out on ranks.

    Raises:
        InputError: The plan cannot be trained as it is.
        ProofError: The program cannot run.
    """
    proof = compile_plan(validated.plan, validated.blocks, options.profile, options.cluster)
    layout = make_layout(proof.costs, validated.blocks)
    check_replica_sync(proof, layout)
    _log.debug("compiled %d actions for %d ranks", proof.program.num_actions, len(layout.devices))
    return Compiled(proof, layout)
