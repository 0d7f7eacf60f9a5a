"""Whether a plan trains to the numbers of one process: tried on the user's own model."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.launch.hosts import Hosts, default_threads
from penstock.launch.losses import loss_difference
from penstock.launch.model_script import check_script
from penstock.launch.progress import ProgressDisplay
from penstock.launch.train_options import Training
from penstock.launch.training import Trained, train
from penstock.report import shown_name
from penstock.report.analysis import changed_sums
from penstock.simulate import Evaluation, evaluate_costs
from penstock.units import counted

if TYPE_CHECKING:
    from penstock.runtime.verify import Sameness

NUM_STEPS = 5
MOST_NAMES = 3
TOLERANCE = 1e-6

AMPLIFIED = (
    "that may be the optimizer: those like Adam make a step of full size of a gradient that is nothing but rounding "
    "(of a bias before batch norm); so once more, with the gradients of one process in every step:"
)


@dataclass(frozen=True)
class Numbers:
    """What ranks trained to, beside what one process did."""

    losses: tuple[tuple[float, float], ...]
    losses_off: float
    """The largest relative difference."""
    states: dict[str, "Sameness"]
    """Parameters and buffers."""

    @property
    def is_equal(self) -> bool:
        """To the bit."""
        return self.losses_off == 0 and all(item.num_equal == item.num_tensors for item in self.states.values())

    @property
    def holds(self) -> bool:
        """Up to what sums in another order may change."""
        return self.losses_off <= TOLERANCE and all(item.within(TOLERANCE) for item in self.states.values())


def check_numerics(screen: ProgressDisplay, asked: Training) -> tuple[bool, dict[str, Any]]:
    """Train some steps by the plan and in one process; show how they differ. Gives whether they agree, and figures."""
    check_script(asked.script)
    if find_spec("torch") is None:
        raise InputError("training needs torch", hint="pip install 'penstock[run]'")
    asked, opened = replace(asked, steps=NUM_STEPS).open()
    num_ranks = len(opened.plan.devices)
    asked = replace(asked, threads=default_threads(num_ranks))
    predicted = evaluate_costs(opened.costs)
    quiet = screen.silenced()
    with screen.working(f"training {NUM_STEPS} steps in one process, then on {counted(num_ranks, 'rank')}"):
        alone = _trained(quiet, asked, predicted, 1, alone=True)
        _require_finite(alone)
        ranks = _trained(quiet, asked, predicted, num_ranks)
    numbers = _compared(alone, ranks)
    reasons = changed_sums(predicted.costs, predicted.program)
    screen.show(f"the numbers of {NUM_STEPS} steps by the plan on {counted(num_ranks, 'rank')}, and in one process:")
    _show(screen, numbers)
    data = {"sums_in_another_order": reasons, **_data(numbers)}
    if reasons and not numbers.is_equal:
        screen.show("  last bits may differ, as sums are in another order:", *(f"    {text}" for text in reasons))
    elif not numbers.is_equal:
        screen.show("  no sum is in another order here, so the model itself is not exactly repeatable")
    holds, how = numbers.holds, f"within {TOLERANCE:g}"
    if reasons and not holds:
        screen.show(f"  {AMPLIFIED}")
        with screen.working(f"training {NUM_STEPS} steps on {counted(num_ranks, 'rank')} once more"):
            closer = _trained(quiet, asked, predicted, num_ranks, follow=alone.states[0])
        holds, data["step_by_step"] = _judge_steps(screen, alone, closer)
        how += " in every step"
    verdict = "the same numbers, " if holds else "NOT the same numbers, not "
    screen.show(f"  {verdict}{'to the bit' if numbers.is_equal else how}")
    return holds, {"holds": holds, "is_equal": numbers.is_equal, "num_steps": len(numbers.losses), **data}


def _trained(
    screen: ProgressDisplay,
    asked: Training,
    predicted: Evaluation,
    num_ranks: int,
    *,
    alone: bool = False,
    follow: bytes | None = None,
) -> Trained:
    found = train(
        screen, asked, predicted, hosts=Hosts(), num_ranks=num_ranks, alone=alone, keep_state=True, follow=follow
    )
    if found.failure:
        raise found.failure
    if found.was_stopped:
        raise KeyboardInterrupt
    return found


def _require_finite(alone: Trained) -> None:
    lost = next((step for step in alone.steps if not math.isfinite(step.loss)), None)
    if lost is not None:
        raise InputError(
            f"the loss is {lost.loss} at step {lost.step} in one process, and what is no number cannot be compared",
            hint="Mend the training first: penstock train --check-finite says where it begins.",
        )


def _compared(alone: Trained, ranks: Trained) -> Numbers:
    from penstock.runtime.verify import compare_states

    whole, *_ = _states(alone)
    parts = _states(ranks)
    pairs = list(zip(alone.steps, ranks.steps, strict=True))
    return Numbers(
        losses=tuple((one.loss, other.loss) for one, other in pairs),
        losses_off=max(loss_difference(one, other) for one, other in pairs),
        states={
            what: compare_states(whole[what], [part[what] for part in parts]) for what in ("parameters", "buffers")
        },
    )


def _judge_steps(screen: ProgressDisplay, alone: Trained, closer: Trained) -> tuple[bool, dict[str, Any]]:
    """Whether every step of the ranks is that of one process, where both began it with the same parameters."""
    from penstock.runtime.verify import compare_gradients

    gradients = compare_gradients([state["gradients"] for state in _states(closer)])
    numbers = _compared(alone, closer)
    text = f"  gradients: of all together the largest relative difference in a step is {gradients.together:.1e}"
    if gradients.rounding:
        text += f"; nothing but rounding are those of {_some(gradients.rounding)}"
    if gradients.wrong:
        text += f"; WRONG are those of {_some(gradients.wrong)}"
    screen.show(text)
    _show(screen, numbers)
    return gradients.within(TOLERANCE) and numbers.holds, {"gradients": gradients, **_data(numbers)}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(shown_name, names[:MOST_NAMES])) + more


def _show(screen: ProgressDisplay, numbers: Numbers) -> None:
    num = len(numbers.losses)
    screen.show(
        f"  losses: all {num} are equal to the bit"
        if numbers.losses_off == 0
        else f"  losses: the largest relative difference is {numbers.losses_off:.1e}",
        *(f"  {_told(what, item)}" for what, item in numbers.states.items() if item.num_tensors or item.missing),
    )


def _told(what: str, item: "Sameness") -> str:
    if item.num_equal == item.num_tensors and not item.torn and not item.missing:
        return f"{what}: all {item.num_tensors} are equal to the bit"
    text = (
        f"{what}: {item.num_equal} of {item.num_tensors} are equal to the bit; the largest relative difference is "
        f"{item.worst:.1e} ({shown_name(item.worst_name)}), of all together {item.together:.1e}"
    )
    for name in item.torn[:MOST_NAMES]:
        text += f"; ranks hold different numbers for {shown_name(name)}"
    for name in item.missing[:MOST_NAMES]:
        text += f"; {shown_name(name)} is on one side only"
    return text


def _data(numbers: Numbers) -> dict[str, Any]:
    return {"losses_off": numbers.losses_off, "losses": numbers.losses, **numbers.states}


def _states(trained: Trained) -> list[dict[str, Any]]:
    import torch

    return [torch.load(io.BytesIO(state), map_location="cpu") for state in trained.states]
