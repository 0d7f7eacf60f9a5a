"""Whether a plan trains to the numbers of one process: tried on the user's own model."""

import io
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from penstock.cli.hosts import Hosts, default_threads
from penstock.cli.model_script import check_script
from penstock.cli.screen import Screen, printable
from penstock.cli.trained import loss_difference
from penstock.cli.training import Training
from penstock.cli.training_run import Trained, train
from penstock.errors import InputError
from penstock.quantities import counted
from penstock.report.sums import changed_sums
from penstock.simulate.evaluate import Evaluation, evaluate_costs

NUM_STEPS = 5
TOLERANCE = 1e-6

AMPLIFIED = (
    "last bits may differ at first, and optimizers like Adam make them grow where a gradient is nothing but rounding "
    "(a bias before batch norm)"
)


def check_numerics(screen: Screen, asked: Training) -> tuple[bool, dict[str, Any]]:
    """Train some steps by the plan and in one process; show how they differ. Gives whether they agree, and figures."""
    check_script(asked.script)
    if find_spec("torch") is None:
        raise InputError("training needs torch", hint="pip install 'penstock[run]'")
    asked, opened = replace(asked, steps=NUM_STEPS).open()
    num_ranks = len(opened.plan.devices)
    asked = replace(asked, threads=default_threads(num_ranks))
    predicted = evaluate_costs(opened.costs)
    quiet = replace(screen, quiet=True)
    with screen.working(f"training {NUM_STEPS} steps in one process, then on {counted(num_ranks, 'rank')}"):
        alone = _trained(quiet, asked, predicted, 1, alone=True)
        ranks = _trained(quiet, asked, predicted, num_ranks, alone=False)
    return _judge(screen, predicted, alone, ranks)


def _trained(screen: Screen, asked: Training, predicted: Evaluation, num_ranks: int, *, alone: bool) -> Trained:
    found = train(screen, asked, predicted, hosts=Hosts(), num_ranks=num_ranks, alone=alone, keep_state=True)
    if found.failure:
        raise found.failure
    if found.was_stopped:
        raise KeyboardInterrupt
    return found


def _judge(screen: Screen, predicted: Evaluation, alone: Trained, ranks: Trained) -> tuple[bool, dict[str, Any]]:
    from penstock.runtime.sameness import Sameness, compare_states

    whole, *_ = _states(alone)
    parts = _states(ranks)
    found = {what: compare_states(whole[what], [part[what] for part in parts]) for what in ("parameters", "buffers")}
    pairs = list(zip(alone.steps, ranks.steps, strict=True))
    losses_off = max(loss_difference(one, other) for one, other in pairs)
    is_equal = losses_off == 0 and all(item.num_equal == item.num_tensors for item in found.values())
    holds = losses_off <= TOLERANCE and all(item.within(TOLERANCE) for item in found.values())
    reasons = changed_sums(predicted.costs, predicted.program)

    def tell(what: str, item: Sameness) -> str:
        if item.num_equal == item.num_tensors and not item.torn and not item.missing:
            return f"{what}: all {item.num_tensors} are equal to the bit"
        text = (
            f"{what}: {item.num_equal} of {item.num_tensors} are equal to the bit; the largest relative difference is "
            f"{item.worst:.1e} ({printable(item.worst_name)}), of all together {item.together:.1e}"
        )
        for name in item.torn[:3]:
            text += f"; ranks hold different numbers for {printable(name)}"
        for name in item.missing[:3]:
            text += f"; {printable(name)} is on one side only"
        return text

    steps = f"{len(pairs)} steps by the plan on {counted(len(parts), 'rank')}, and in one process:"
    screen.show(
        f"the numbers of {steps}",
        f"  losses: all {len(pairs)} are equal to the bit"
        if losses_off == 0
        else f"  losses: the largest relative difference is {losses_off:.1e}",
        *(f"  {tell(what, item)}" for what, item in found.items() if item.num_tensors or item.missing),
    )
    if reasons and not is_equal:
        differ = "last bits may differ" if holds else AMPLIFIED
        screen.show(f"  {differ}, as sums are in another order:", *(f"    {text}" for text in reasons))
    elif not is_equal:
        screen.show("  no sum is in another order here, so the model itself is not exactly repeatable")
    verdict = "the same numbers" if holds else "NOT the same numbers"
    screen.show(f"  {verdict}, " + ("to the bit" if is_equal else f"{'' if holds else 'not '}within {TOLERANCE:g}"))
    data = {
        "holds": holds,
        "is_equal": is_equal,
        "num_steps": len(pairs),
        "losses_off": losses_off,
        "losses": [[one.loss, other.loss] for one, other in pairs],
        "sums_in_another_order": reasons,
        **found,
    }
    return holds, data


def _states(trained: Trained) -> list[dict[str, Any]]:
    import torch

    return [torch.load(io.BytesIO(state), map_location="cpu") for state in trained.states]
