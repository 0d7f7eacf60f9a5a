"""Phases 1 and 2 of assembly: the layers of the model, and the program of the plan. Without other ranks."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from penstock.errors import MismatchError
from penstock.model import (
    Block,
    find_blocks,
    move_model,
    plain_inputs,
    require_plain_parameters,
    require_separate_launches,
)
from penstock.plan import Plan
from penstock.plan.pricing import Costs
from penstock.program.proof import Proof
from penstock.program.slices import ProgramSlice, load_slice, slice_program
from penstock.runtime.layout import (
    Layout,
    check_planned_model,
    check_replica_sync,
    has_unproved_sync,
    make_layout,
    place_on_ranks,
    price_plan,
    prove_plan,
)
from penstock.runtime.options import PipelineOptions
from penstock.runtime.precision import Conversion, convert_inputs
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

    A model on another device than the chosen one is moved there. One on the meta device stays there until phase 4.

    Raises:
        InputError: The model is not a chain of blocks, or nothing fills its tensors on the meta device.
        MismatchError: The plan is for another model.
    """
    check_materializable(model, options.init)
    require_plain_parameters(model)
    require_separate_launches(model)
    chosen = options.select_device()
    own = next((item.device for item in model.parameters() if not item.is_meta), None)
    if chosen is not None and own not in (None, chosen):
        move_model(model, chosen)
    device = chosen or own or torch.device("cpu")
    # A model may choose its path by the types of tensors. Values are converted when they are there, in phase 4.
    precision = options.training_precision
    conversion = Conversion(model, precision)
    try:
        inputs = convert_inputs(plain_inputs(options.inputs), precision)
        blocks = find_blocks(model, options.blocks, inputs, device)
    finally:
        conversion.undo()
    check_planned_model(plan, blocks, options.profile)
    return Validated(model, plan, blocks, device)


@dataclass(frozen=True, eq=False)
class Compiled:
    """Result of phase 2."""

    costs: Costs
    layout: Layout
    slices: Path | None
    """The file of program slices, if there is one."""
    is_priced: bool
    """Whether the costs are those of a profile and a cluster, not placeholders."""

    @cached_property
    def proof(self) -> Proof:
        """The whole program, proved. With a file of slices it is made only if it is needed.

        Raises:
            ProofError: The program cannot run.
        """
        return prove_plan(self.costs, within_memory=self.is_priced)

    def on_ranks(self, ranks: Sequence[int]) -> "Compiled":
        """Return the same plan on other ranks, one for each device. A proof that has been made is kept."""
        layout = place_on_ranks(self.layout, ranks)
        if layout is self.layout:
            return self
        moved = replace(self, layout=layout)
        if "proof" in vars(self):
            vars(moved)["proof"] = self.proof
        return moved

    def slice_of(self, rank: int) -> ProgramSlice:
        """Return the slice of a rank: from the file, or of the whole program.

        Raises:
            InputError: The file is damaged.
            MismatchError: The file is for another plan.
        """
        device = (self.layout.devices[rank] if rank < len(self.layout.devices) else "") or None
        if self.slices is None:
            return slice_program(self.proof.program, device)
        program = load_slice(self.slices, device)
        if program.plan != self.costs.plan.digest:
            raise MismatchError(
                "the program slices were made for another plan",
                where=str(self.slices),
                hint="Write the file again with penstock.save_slices, from an evaluation of this plan.",
            )
        return program


def compile_program(validated: Validated, options: PipelineOptions) -> Compiled:
    """Phase 2: price the plan and lay it out on ranks. Without a file of slices, lower and prove its program.

    Raises:
        InputError: The plan cannot be trained as it is.
        ProofError: The program cannot run.
    """
    costs = price_plan(validated.plan, validated.blocks, options.profile, options.cluster)
    layout = make_layout(costs, validated.blocks)
    slices = None if options.slices is None else Path(options.slices)
    compiled = Compiled(costs, layout, slices, is_priced=options.profile is not None)
    if slices is None or has_unproved_sync(costs, layout):
        check_replica_sync(compiled.proof, layout)
        _log.debug("compiled %d actions for %d ranks", compiled.proof.program.num_actions, len(layout.devices))
    return compiled
