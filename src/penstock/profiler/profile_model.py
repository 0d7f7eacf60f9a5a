"""`penstock.profile`: measures the layers of a model and the overhead of the runtime."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.profile import Overhead, Profile
from penstock.profiler.measurement import DEFAULT_SECONDS, DEFAULT_STEADY, find_chain, measure
from penstock.profiler.overhead_text import describe_overhead
from penstock.profiler.steadiness import Steadiness
from penstock.profiler.training_precision import in_precision

if TYPE_CHECKING:
    from torch import nn

    from penstock.model import Block


def profile(
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any] | None = None,
    *,
    targets: Any = None,
    blocks: Sequence[str] | None = None,
    micro_batch_sizes: Sequence[int] = (),
    seconds: float = DEFAULT_SECONDS,
    steady: float = DEFAULT_STEADY,
    name: str = "",
    report: Callable[[Steadiness], None] | None = None,
    overheads: bool = True,
    remeasure_overheads: bool = False,
    precision: str | None = None,
) -> Profile:
    """Measure the layers of a model on its current device.

    Rounds of forward and backward passes are repeated until the medians are steady or the time is over. On a CPU, the
    profile also has the overhead of the runtime: two processes measure it once for each machine, for a few seconds.
    Parameters, gradients, buffers and torch's random state are not changed.

    Args:
        model: The model, on the device to measure.
        inputs: Sample inputs. A tuple is the positional arguments of the model, a mapping its keyword arguments,
            anything else its only argument. Rows are the first dimension; a tensor whose first dimension is 1 beside
            others with more rows is the same for all rows.
        loss: `loss(output)`, or `loss(output, targets)` if there are targets, returns the number to minimize, or a
            sum and the count to divide it by. None: the model's own loss, `output.loss`.
        targets: Targets of the loss for the rows of `inputs`.
        blocks: Names of the submodules that become layers, in the order in which forward calls them. None: the
            children of an nn.Sequential, else detected.
        micro_batch_sizes: Micro-batch sizes to measure; the largest is that of the profile. Empty: all rows of
            `inputs`, and half of them.
        seconds: Approximate time limit of the measurement.
        steady: Relative standard error of the medians at which the measurement ends.
        name: Name of the profile (default: the class name of the model).
        report: Called after every round with the current `Steadiness`.
        overheads: Whether to measure the overhead of the runtime.
        remeasure_overheads: Whether to measure the overhead even if it is known for this machine.
        precision: Precision of training: "fp32", "tf32", "bf16", "fp16", "bf16-mixed" or "fp16-mixed", as for
            `Pipeline`. None: the model as it is.

    Returns:
        The profile. `is_steady` is False if the time was over before the medians were steady.

    Raises:
        InputError: torch is not installed, the model cannot be split into blocks, or the model or its loss fails on
            the inputs.

    Example:
        >>> import penstock, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> loss = nn.functional.mse_loss
        >>> profile = penstock.profile(
        ...     model, torch.randn(4, 8), loss, targets=torch.randn(4, 1), seconds=0.1, overheads=False
        ... )
        >>> profile.num_units, profile.micro_batch_size
        (3, 4)
    """
    with in_precision(precision, model, inputs, loss) as sample:
        chain = find_chain(model, blocks, sample.inputs)
        measured = measure(
            model,
            sample.inputs,
            sample.loss,
            targets=targets,
            blocks=chain,
            micro_batch_sizes=micro_batch_sizes,
            seconds=seconds,
            steady=steady,
            name=name,
            report=report,
            precision=precision,
        )
        if not overheads:
            return measured
        return with_overheads(
            measured, model, sample.inputs, sample.loss, targets=targets, blocks=chain, remeasure=remeasure_overheads
        )


def with_overheads(
    profile: Profile,
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any] | None = None,
    *,
    targets: Any = None,
    blocks: "Sequence[str] | Sequence[Block] | None" = None,
    remeasure: bool = False,
    report: Callable[[str], None] = lambda _text: None,
) -> Profile:
    """Return the profile with the measured overhead of the runtime, if the model is on the CPU.

    If the measurement fails, the profile has no overhead and an assumption that names the reason.

    Args:
        profile: The profile of the model.
        model: The model.
        inputs: Sample inputs, as for `profile`.
        loss: The loss, as for `profile`.
        targets: Targets of the loss.
        blocks: Names of the blocks, or the result of `find_chain`.
        remeasure: Whether to measure the costs of actions and messages even if they are known for this machine.
        report: Called with a description of each step of the measurement.
    """
    import torch

    from penstock.device import is_accelerator
    from penstock.profiler.backward_ratios import measure_ratios
    from penstock.profiler.overhead_cache import find_overhead

    if is_accelerator(next(model.parameters()).device):
        return profile
    try:
        report(
            "finding the runtime overhead of actions and messages: if it is unknown, two processes train small layers"
        )
        found = find_overhead(torch.get_num_threads(), remeasure=remeasure)
        report("measuring the extra time of a split backward and of a remote backward")
        ratios = measure_ratios(model, inputs, loss, targets, find_chain(model, blocks, inputs))
    except PenstockError as error:
        # The profile is usable without it, such as for blocks whose backward cannot be split, or without subprocesses.
        text = f"The overhead of the runtime is unknown: assumed none. {error.what}"
        return replace(profile, assumptions=(*profile.assumptions, f"{text.rstrip('.')}."))
    costs = found.measured.costs
    overhead = Overhead(
        kind=profile.kinds[0],
        job_s=costs.job_s,
        message_s=costs.message_s,
        byte_s=costs.byte_s,
        split_ratio=ratios.split,
        remote_ratio=ratios.remote,
    )
    is_steady = found.measured.is_steady
    what = "Measured overhead" if is_steady else "Upper bounds of the overhead"
    origin = (
        f"measured {found.date} on this machine; --remeasure-overheads measures again"
        if is_steady
        else f"the machine was too busy on {found.date} to measure them; they are measured again with the next profile"
    )
    text = f"{what} of the runtime: {describe_overhead(overhead)} ({origin})."
    return replace(profile, overheads=(overhead,), assumptions=(*profile.assumptions, text))
