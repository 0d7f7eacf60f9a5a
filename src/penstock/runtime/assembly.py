"""What a rank has of a plan: the stages of its stages, and of these what it trains."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import Block
from penstock.runtime.layout import Layout
from penstock.runtime.stage import Meeting, TorchStage
from penstock.runtime.transport import Mail
from penstock.units import counted


def check_enough_ranks(layout: Layout, num_ranks: int) -> None:
    """Refuse to begin with fewer ranks than the plan has devices."""
    num_devices = len(layout.devices)
    if num_ranks < num_devices:
        raise InputError(
            f"the plan uses {num_devices} devices, but there {'is' if num_ranks == 1 else 'are'} only "
            f"{counted(num_ranks, 'rank')}",
            hint=f"Start {num_devices} ranks, or plan for fewer devices.",
        )


def make_stages(
    layout: Layout,
    rank: int,
    blocks: Sequence[Block],
    model: nn.Module,
    mail: Mail,
    *,
    device: torch.device,
    seed: int,
    check_finite: bool,
) -> dict[int, TorchStage]:
    """By stage: those whose forward or backward runs on this rank."""
    return {
        number: TorchStage(
            blocks[stage.start : stage.stop],
            stage.start,
            model,
            seed=seed,
            is_split=len(stage.shares) > 1,
            device=device,
            check_finite=check_finite,
            meeting=Meeting(mail, is_expected=stage.meets) if len(stage.shares) > 1 else None,
        )
        for number, stage in enumerate(layout.stages)
        if rank in (*stage.forward, *stage.backward)
    }


def trained_parameters(layout: Layout, rank: int, runners: Mapping[int, TorchStage]) -> dict[str, nn.Parameter]:
    """Those that are trained on this rank, under the model's own names, in the model's order."""
    return {
        name: runners[number].trained[name]
        for number, stage in enumerate(layout.stages)
        if rank in stage.backward
        for name in runners[number].trained
    }


def forward_buffers(
    layout: Layout, rank: int, runners: Mapping[int, TorchStage], model: nn.Module
) -> dict[str, Tensor]:
    """The buffers of stages whose forward runs on this rank, as they are now, under the model's own names."""
    return {
        name: model.get_buffer(name)
        for number, stage in enumerate(layout.stages)
        if rank in stage.forward
        for block in runners[number].blocks
        for name in block.buffers
    }
