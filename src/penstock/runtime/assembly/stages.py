"""Phase 6 of assembly: the stages of this rank, and which of their tensors it trains and buffers."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from penstock.model import Block
from penstock.runtime.assembly.compilation import Compiled, Validated
from penstock.runtime.layout import Layout
from penstock.runtime.options import PipelineOptions
from penstock.runtime.stage import ReplicaSync, TorchStage
from penstock.runtime.transport import Transport


def build_stages(
    validated: Validated,
    compiled: Compiled,
    blocks: Sequence[Block],
    rank: int,
    transport: Transport,
    options: PipelineOptions,
) -> dict[int, TorchStage]:
    """Phase 6: build the stages whose forward or backward is on this rank.

    Args:
        validated: Result of phase 1.
        compiled: Result of phase 2.
        blocks: The layers with their values, as phase 4 returns them.
        rank: This rank.
        transport: Used by stages with several replicas, when they run.
        options: The options of the pipeline.
    """
    return {
        number: TorchStage(
            blocks[stage.start : stage.stop],
            stage.start,
            validated.model,
            seed=options.seed,
            is_split=len(stage.shares) > 1,
            device=validated.device,
            check_finite=options.check_finite,
            replica_sync=ReplicaSync(transport, is_expected=stage.needs_sync) if len(stage.shares) > 1 else None,
        )
        for number, stage in enumerate(compiled.layout.stages)
        if rank in (*stage.forward, *stage.backward)
    }


def trained_parameters(layout: Layout, rank: int, runners: Mapping[int, TorchStage]) -> dict[str, nn.Parameter]:
    """Return the parameters that a rank trains, by their names in the model, in the order of the model."""
    return {
        name: runners[number].trained[name]
        for number in sorted(runners)
        if rank in layout.stages[number].backward
        for name in runners[number].trained
    }


def forward_buffers(
    layout: Layout, rank: int, runners: Mapping[int, TorchStage], model: nn.Module
) -> dict[str, Tensor]:
    """Return the current buffers of the stages whose forward is on a rank, by their names in the model."""
    return {
        name: model.get_buffer(name)
        for number in sorted(runners)
        if rank in layout.stages[number].forward
        for block in runners[number].blocks
        for name in block.buffers
    }
