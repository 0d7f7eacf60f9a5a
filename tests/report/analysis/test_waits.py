"""Waits of devices that block at their messages are named as such, and so are the gaps that follow."""

import msgspec
import pytest

from penstock.plan.message_model import MessageModel
from penstock.report.analysis.gaps import Reason, find_gaps
from penstock.report.analysis.waits import group_waits
from penstock.simulate.evaluation import evaluate
from penstock.timeline.types import Timeline
from tests.support.strategies import two_stages


def run(messages: MessageModel | None) -> Timeline:
    case = two_stages(num_microbatches=3)
    plan = msgspec.structs.replace(case.plan, messages=messages)
    return evaluate(plan, case.profile, case.cluster).timeline


@pytest.mark.parametrize("together", [False, True])
def test_a_rendezvous_is_named(together: bool) -> None:
    # d0 waits 3 seconds until d1 has its first activations. One after the other, it also waits before its first two
    # backwards, 8 and 6 seconds: for the gradient, then for d1 to receive its next activations in 3 seconds.
    timeline = run(MessageModel(receive="blocking", send="rendezvous", together=together))
    waits = [group.sentence for group in group_waits(timeline) if "rendezvous" in group.sentence]
    waited = "d0 waited {} for d1 to receive its activations, blocked in a rendezvous (transfer {}), {}"
    times = ("3.00 s", "3.00 s", "once, before 0F1") if together else ("17.0 s", "9.00 s", "3x, longest before 0B0")
    expected = waited.format(*times)
    assert waits[0] == expected
    reasons = {part.reason for gap in find_gaps(timeline) for part in gap.parts}
    # Before its second forward, d1 waits for d0, which waits for a gradient before it sends.
    assert (Reason.BLOCKED in reasons) == (not together)


def test_overlapped_messages_block_nothing() -> None:
    timeline = run(None)
    assert not any("blocked" in group.sentence for group in group_waits(timeline))
    assert all(part.reason is not Reason.BLOCKED for gap in find_gaps(timeline) for part in gap.parts)
