"""The uncertainty of a prediction in sentences."""

from penstock.planners import Declined
from penstock.simulate import Interval
from penstock.units import show_count, show_percent, show_range, show_seconds


def interval_sentence(interval: Interval) -> str:
    """The predicted interval, how it was found, and where the errors are from.

    Args:
        interval: The interval of a plan.
    """
    share = show_percent(interval.level).replace(".0 ", " ")
    return (
        f"Predicted iteration: {show_range(interval.simulated_s, interval.low_s, interval.high_s)}; the interval is to "
        f"hold {share} of all iterations, {show_seconds(interval.expected_s)} on average "
        f"({show_count(interval.num_samples, 'perturbed simulation')}). {interval.reason}"
    )


def inside_sentence(interval: Interval, measured_s: float) -> str:
    """Whether a measured iteration is inside the predicted interval.

    Args:
        interval: The interval of the plan.
        measured_s: The measured iteration.
    """
    inside = interval.low_s <= measured_s <= interval.high_s
    predicted = show_range(interval.simulated_s, interval.low_s, interval.high_s)
    return (
        f"Measured {show_seconds(measured_s)}, predicted {predicted}: {'inside' if inside else 'outside'} the interval."
    )


def declined_sentence(declined: Declined) -> str:
    """A plan that is faster by simulated time, and why it was not chosen.

    Args:
        declined: The plan.
    """
    gain = declined.gain
    expected = f"{show_percent(abs(gain))} {'faster' if gain > 0 else 'slower'} than this plan"
    reason = (
        f"not more than the uncertainty of the difference, {show_percent(declined.uncertainty)}"
        if gain > 0
        else "under what is known of its errors"
    )
    simulated = show_seconds(declined.seconds)
    return f"Declined: {declined.what}, {simulated} simulated, but expected to be {expected}, {reason}."
