"""What a rank has of a plan: the stages of its segments, and of these what it trains."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import Block
from penstock.runtime.layout import Layout
from penstock.runtime.stage import Meeting, Stage
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
) -> dict[int, Stage]:
    """By segment: those whose forward or backward runs on this rank."""
    return {
        number: Stage(
            blocks[segment.start : segment.stop],
            segment.start,
            model,
            seed=seed,
            is_split=len(segment.shares) > 1,
            device=device,
            check_finite=check_finite,
            meeting=Meeting(mail, is_expected=segment.meets) if len(segment.shares) > 1 else None,
        )
        for number, segment in enumerate(layout.segments)
        if rank in (*segment.forward, *segment.backward)
    }


def trained_parameters(layout: Layout, rank: int, stages: Mapping[int, Stage]) -> dict[str, nn.Parameter]:
    """Those that are trained on this rank, under the model's own names, in the model's order."""
    return {
        name: stages[number].trained[name]
        for number, segment in enumerate(layout.segments)
        if rank in segment.backward
        for name in stages[number].trained
    }


def forward_buffers(layout: Layout, rank: int, stages: Mapping[int, Stage], model: nn.Module) -> dict[str, Tensor]:
    """The buffers of segments whose forward runs on this rank, as they are now, under the model's own names."""
    return {
        name: model.get_buffer(name)
        for number, segment in enumerate(layout.segments)
        if rank in segment.forward
        for block in stages[number].blocks
        for name in block.buffers
    }
