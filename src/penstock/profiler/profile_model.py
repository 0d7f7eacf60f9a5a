"""The profile of a model: its units measured, and what this runtime spends around them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.profile import Profile
from penstock.profiler.measurement import DEFAULT_SECONDS, DEFAULT_STEADY, measure
from penstock.profiler.steadiness import Steadiness
from penstock.units import show_percent, show_seconds

if TYPE_CHECKING:
    from torch import nn


def profile(
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any],
    *,
    targets: Any = None,
    blocks: Sequence[str] | None = None,
    micro_batch_sizes: Sequence[int] = (),
    seconds: float = DEFAULT_SECONDS,
    steady: float = DEFAULT_STEADY,
    name: str = "",
    report: Callable[[Steadiness], None] | None = None,
    overheads: bool = True,
) -> Profile:
    """What `model` costs on the device where it is, block by block: a profile to plan with.

    It is trained on `inputs` as `penstock.model.blocks.find_blocks` says; `loss(output)`, or `loss(output, targets)`
    if there are targets, is the number to train. `blocks` are the names of its blocks, found if not given. It is
    measured for these `micro_batch_sizes` (the most of them is the profile's own size), else for all rows of the
    inputs and half of them. Rounds are repeated until the medians are `steady` (to 2 %), for at most about `seconds`;
    after every round `report` hears how steady they are, and the profile's assumptions say it in the end. On a
    processor, two processes then find out for some seconds what the runtime spends around jobs and messages, unless
    `overheads` are not wanted.

    Parameters, gradients, buffers and the state of torch's random numbers are left as they were.
    """
    found = measure(
        model,
        inputs,
        loss,
        targets=targets,
        blocks=blocks,
        micro_batch_sizes=micro_batch_sizes,
        seconds=seconds,
        steady=steady,
        name=name,
        report=report,
    )
    return with_overheads(found, model, inputs, loss, targets=targets, blocks=blocks) if overheads else found


def with_overheads(
    profile: Profile,
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any],
    *,
    targets: Any = None,
    blocks: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Profile:
    """The profile of a model with what the runtime spends, if it is on this machine's processor.

    `tell` hears what is being found out.
    """
    import torch

    from penstock.profiler.backward_ratios import measure_ratios
    from penstock.profiler.runtime_overhead import measure_overhead

    if next(model.parameters()).device.type != "cpu":
        return profile
    try:
        tell("training tiny layers in two processes, to see what the runtime spends for a job and for a message")
        spent = measure_overhead(profile.kinds[0], torch.get_num_threads())
        tell("running the backward in two parts, and apart from the forward, to see how much longer that takes")
        ratios = measure_ratios(model, inputs, loss, targets, blocks)
        spent = replace(spent, split_ratio=ratios.split, moved_ratio=ratios.moved)
    except PenstockError as error:
        # It can be planned with all the same, if less well: blocks that cannot be run in two parts, no second process.
        text = f"What the runtime spends around jobs and messages is not known, and taken as nothing: {error.what}"
        return replace(profile, assumptions=(*profile.assumptions, f"{text.rstrip('.')}."))
    text = (
        f"Around its units the runtime was found to spend {show_seconds(spent.job_s)} for every job, "
        f"{show_seconds(spent.message_s)} for each end of a message and {show_seconds(spent.byte_s * 1e6)} for "
        f"every MB sent; a backward in two jobs takes {show_percent(spent.split_ratio)} longer than one in one, and "
        f"forward and backward {show_percent(spent.moved_ratio)} longer if they are in different places."
    )
    return replace(profile, overheads=(spent,), assumptions=(*profile.assumptions, text))
