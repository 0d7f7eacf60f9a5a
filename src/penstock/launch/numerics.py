"""`penstock check --numerics`: compares training with a plan and training in a single process, on the user's model."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.launch.hosts import Hosts, default_threads
from penstock.launch.model_script import check_script
from penstock.launch.progress import ProgressDisplay
from penstock.launch.train_options import TrainOptions
from penstock.launch.training import TrainResult, loss_difference, train
from penstock.printable_text import escape_text
from penstock.profile import find_precision
from penstock.report.analysis import reordered_sums
from penstock.simulate import Evaluation, evaluate_costs
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.runtime.verify import StateDiff

NUM_STEPS = 5
MAX_NAMES = 3
TOLERANCE = 1e-6
ROUNDINGS = 8
"""With products in another precision than float32, results may differ by so many roundings."""
OWN_TOLERANCE, LOW_OWN_TOLERANCE = 1e-3, 0.25
"""Relative difference allowed for a single gradient, in float32 and below."""
ROW_MEAN = "mean over rows"
"""What `Pipeline.loss_reduction` returns if micro-batches are weighted by rows."""

AMPLIFIED = (
    "the optimizer may amplify rounding: Adam makes a full-size step from a gradient that is only rounding error, such "
    "as that of a bias before batch norm. Training again, with the gradients of a single process in every step:"
)


@dataclass(frozen=True)
class Comparison:
    """The results of ranks compared with those of a single process."""

    losses: tuple[tuple[float, float], ...]
    losses_off: float
    """The largest relative difference."""
    states: dict[str, "StateDiff"]
    """Parameters and buffers."""
    tolerance: float = TOLERANCE

    @property
    def is_equal(self) -> bool:
        """Whether all values are bitwise equal."""
        return self.losses_off == 0 and all(item.num_equal == item.num_tensors for item in self.states.values())

    @property
    def holds(self) -> bool:
        """Whether all values are equal up to what another order of sums can change."""
        return self.losses_off <= self.tolerance and all(item.within(self.tolerance) for item in self.states.values())


def check_numerics(display: ProgressDisplay, options: TrainOptions) -> tuple[bool, dict[str, Any]]:
    """Train a few steps with the plan and in a single process, and show how the results differ.

    Returns:
        Whether they agree, and the figures as data.
    """
    check_script(options.script)
    if find_spec("torch") is None:
        raise InputError("training needs torch", hint="pip install 'penstock[run]'")
    options, bundle = replace(options, steps=NUM_STEPS).open()
    num_ranks = len(bundle.plan.devices)
    options = replace(options, threads=default_threads(num_ranks))
    predicted = evaluate_costs(bundle.costs)
    quiet = display.silenced()
    with display.working(f"training {NUM_STEPS} steps in a single process, then on {show_count(num_ranks, 'rank')}"):
        single = _train(quiet, options, predicted, 1, single_process=True)
        _require_finite(single)
        ranks = _train(quiet, options, predicted, num_ranks)
    tolerance = tolerance_of(options.precision)
    comparison = _compare(single, ranks, tolerance)
    reasons = [*reordered_sums(predicted.costs, predicted.program), *_reasons_of_loss(ranks)]
    display.show(f"{NUM_STEPS} steps on {show_count(num_ranks, 'rank')}, compared with a single process:")
    _show(display, comparison)
    data = {"sums_in_another_order": reasons, **_data(comparison)}
    if reasons and not comparison.is_equal:
        display.show(
            "  the last bits may differ, because sums run in a different order:", *(f"    {text}" for text in reasons)
        )
    elif not comparison.is_equal:
        display.show("  all sums run in the same order, so the model itself is not deterministic")
    holds, precision = comparison.holds, f"within {tolerance:g}"
    if reasons and not holds:
        display.show(f"  {AMPLIFIED}")
        with display.working(f"training {NUM_STEPS} steps on {show_count(num_ranks, 'rank')} again"):
            closer = _train(quiet, options, predicted, num_ranks, reference=single.states[0])
        holds, data["step_by_step"] = _check_steps(display, single, closer, tolerance)
        precision += " in every step"
    verdict = "results agree " if holds else "results do NOT agree "
    display.show(f"  {verdict}{'bitwise' if comparison.is_equal else precision}")
    return holds, {"holds": holds, "is_equal": comparison.is_equal, "num_steps": len(comparison.losses), **data}


def _train(
    display: ProgressDisplay,
    options: TrainOptions,
    predicted: Evaluation,
    num_ranks: int,
    *,
    single_process: bool = False,
    reference: bytes | None = None,
) -> TrainResult:
    result = train(
        display,
        options,
        predicted,
        hosts=Hosts(),
        num_ranks=num_ranks,
        single_process=single_process,
        keep_state=True,
        reference=reference,
    )
    if result.failure:
        raise result.failure
    if result.was_stopped:
        raise KeyboardInterrupt
    return result


def _require_finite(single: TrainResult) -> None:
    step = next((step for step in single.steps if not math.isfinite(step.loss)), None)
    if step is not None:
        raise InputError(
            f"the loss of a single process is {step.loss} at step {step.step}, so results cannot be compared",
            hint="Fix the training first: penstock train --check-finite names the layer where it begins.",
        )


def tolerance_of(precision: str | None) -> float:
    """The relative difference that another order of sums may cause.

    >>> tolerance_of("fp32"), tolerance_of("bf16-mixed")
    (1e-06, 0.0625)
    """
    recipe = None if precision is None else find_precision(precision)
    if recipe is None or recipe == find_precision("fp32"):
        return TOLERANCE
    return ROUNDINGS * recipe.epsilon


def _compare(single: TrainResult, ranks: TrainResult, tolerance: float) -> Comparison:
    from penstock.runtime.verify import compare_states

    whole, *_ = _load_states(single)
    parts = _load_states(ranks)
    pairs = list(zip(single.steps, ranks.steps, strict=True))
    return Comparison(
        losses=tuple((one.loss, other.loss) for one, other in pairs),
        losses_off=max(loss_difference(one, other) for one, other in pairs),
        states={
            kind: compare_states(whole[kind], [part[kind] for part in parts]) for kind in ("parameters", "buffers")
        },
        tolerance=tolerance,
    )


def _reasons_of_loss(ranks: TrainResult) -> list[str]:
    """Why the single process adds in another order, if the loss is not a mean over rows."""
    reduction = _load_states(ranks)[0]["loss_reduction"]
    if reduction in ("", ROW_MEAN):
        return []
    return [f"the loss is a {reduction}, which a single process divides at another point"]


def _check_steps(
    display: ProgressDisplay, single: TrainResult, closer: TrainResult, tolerance: float
) -> tuple[bool, dict[str, Any]]:
    """Whether every step agrees with the single process, if both start it with the same parameters."""
    from penstock.runtime.verify import compare_gradients

    gradients = compare_gradients(
        [state["gradients"] for state in _load_states(closer)],
        rounding_error=tolerance,
        own_tolerance=OWN_TOLERANCE if tolerance == TOLERANCE else LOW_OWN_TOLERANCE,
    )
    comparison = _compare(single, closer, tolerance)
    text = f"  gradients: the largest relative difference over all gradients in a step is {gradients.together:.1e}"
    if gradients.rounding:
        text += f"; only rounding error in {_some(gradients.rounding)}"
    if gradients.wrong:
        text += f"; WRONG in {_some(gradients.wrong)}"
    display.show(text)
    _show(display, comparison)
    return gradients.within(tolerance) and comparison.holds, {"gradients": gradients, **_data(comparison)}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(escape_text, names[:MAX_NAMES])) + more


def _show(display: ProgressDisplay, comparison: Comparison) -> None:
    num = len(comparison.losses)
    display.show(
        f"  losses: all {num} are bitwise equal"
        if comparison.losses_off == 0
        else f"  losses: the largest relative difference is {comparison.losses_off:.1e}",
        *(
            f"  {_diff_text(kind, diff)}"
            for kind, diff in comparison.states.items()
            if diff.num_tensors or diff.missing
        ),
    )


def _diff_text(kind: str, diff: "StateDiff") -> str:
    if diff.num_equal == diff.num_tensors and not diff.torn and not diff.missing:
        return f"{kind}: all {diff.num_tensors} are bitwise equal"
    text = (
        f"{kind}: {diff.num_equal} of {diff.num_tensors} are bitwise equal; the largest relative difference is "
        f"{diff.worst:.1e} ({escape_text(diff.worst_name)}), over all tensors {diff.together:.1e}"
    )
    for name in diff.torn[:MAX_NAMES]:
        text += f"; ranks hold different values of {escape_text(name)}"
    for name in diff.missing[:MAX_NAMES]:
        text += f"; {escape_text(name)} exists in one of the two runs only"
    return text


def _data(comparison: Comparison) -> dict[str, Any]:
    return {"losses_off": comparison.losses_off, "losses": comparison.losses, **comparison.states}


def _load_states(result: TrainResult) -> list[dict[str, Any]]:
    import torch

    return [torch.load(io.BytesIO(state), map_location="cpu") for state in result.states]
