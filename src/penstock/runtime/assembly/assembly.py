"""Assembly of one rank's part of a pipeline, in seven phases.

    phase               needs a process group   result
    1. validate         no                      the layers of the model, and its device
    2. compile          no                      the layout of the plan, and its program or its file of slices
    3. connect          yes                     rank, backend and control group; the device and program of each rank
    4. materialize      yes                     values of a model on the meta device; all ranks have the same inputs
    5. open transport   yes                     process groups and transport
    6. build stages     no                      the stages of this rank
    7. arm              yes                     executor, checks, checkpoints and heartbeat

Each phase is a function that returns a frozen part. The order of phases 3 to 5 matters: an error on one rank in phase 4
is raised on all ranks, and ranks with different plans would open different process groups in phase 5. Parts of the
early phases refer to the whole model and must not outlive the assembly: phase 7 releases what other ranks hold.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch import nn

from penstock.errors import InputError
from penstock.model import LossFunction
from penstock.plan import Plan
from penstock.runtime.assembly.compilation import compile_program, validate
from penstock.runtime.assembly.connection import assign_devices, connect, materialize, open_transport
from penstock.runtime.assembly.rank_parts import RankParts, arm
from penstock.runtime.assembly.stages import build_stages
from penstock.runtime.health import RankStatus
from penstock.runtime.options import PipelineOptions


def assemble(
    model: nn.Module, plan: Plan, loss: LossFunction, options: PipelineOptions, read_status: Callable[[], RankStatus]
) -> RankParts:
    """Run all phases.

    Args:
        model: The model. Afterwards parameters that this rank does not hold are on the meta device.
        plan: The plan.
        loss: The loss function.
        options: The options of the pipeline.
        read_status: Returns the status of this rank for the heartbeat.
    """
    if not dist.is_initialized():
        raise InputError(
            "torch.distributed is not initialized",
            hint="Call torch.distributed.init_process_group first, on every rank.",
        )
    validated = validate(model, plan, options)
    compiled = compile_program(validated, options)
    connection = connect(validated, compiled, options)
    compiled = assign_devices(validated, compiled, connection, options)
    program = compiled.slice_of(connection.rank)
    materialized = materialize(validated, compiled, program, connection, options)
    opened = open_transport(validated, compiled, program, connection, options)
    runners = build_stages(validated, compiled, materialized.blocks, connection.rank, opened.transport, options)
    return arm(validated, compiled, program, connection, materialized, opened, runners, loss, options, read_status)
