"""Timelines in notebooks: well-formed, every job at its place, names as text, and small however many jobs there are."""

from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

import penstock
from penstock.program.types import program_from_actions
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.notebook import LEFT, WIDTH, _covered
from tests.support.strategies import two_stages

EVIL = "<script>alert('1')</script>"


def _rects(html: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(html)
    return [item.attrib for item in root.iter("rect") if "22" not in item.attrib["fill"]]


def test_every_job_at_its_place() -> None:
    timeline = evaluate_costs(two_stages(num_microbatches=2).costs).timeline
    html = timeline._repr_html_()
    rects = _rects(html)
    assert len(rects) == 8
    # 18 seconds; d0's second forward is from 2 to 4.
    assert float(rects[1]["x"]) == pytest.approx(LEFT + WIDTH * 2 / 18, abs=0.01)
    assert float(rects[1]["width"]) == pytest.approx(WIDTH * 2 / 18 - 0.4, abs=0.01)
    assert "bubble 55.6 %" in html
    assert "0F1: 2.00 s to 4.00 s" in html
    assert "http" not in html
    assert "<script" not in html


def test_names_are_text() -> None:
    timeline = evaluate_costs(two_stages(num_microbatches=1).costs).timeline
    program = timeline.program
    orders = [
        [action._replace(peer=EVIL if action.peer == "d1" else action.peer) for action in program.actions(name)]
        for name in program.devices
    ]
    plan = msgspec.structs.replace(program.plan, planner=EVIL)
    renamed = program_from_actions(plan, ["d0", EVIL], orders)
    html = penstock.Timeline(
        renamed, EVIL, timeline.start_s, timeline.end_s, timeline.num_bytes, timeline.memory_during,
        timeline.memory_after, timeline.cause,
    )._repr_html_()  # fmt: skip
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    ElementTree.fromstring(html)


def test_many_jobs_are_a_small_picture() -> None:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=1)
    cluster = penstock.load_cluster("40 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 400, planner="balanced", schedule="gpipe", pipeline_depth=12)
    timeline = penstock.evaluate(plan, profile, cluster, within_memory=False).timeline
    html = timeline._repr_html_()
    assert len(html) < 250_000
    widths = sum(float(rect["width"]) for rect in _rects(html))
    # As much is drawn as is worked, within what whole columns can show.
    worked = sum(use.busy_s for use in penstock.device_uses(timeline)) / timeline.iteration_s * WIDTH
    assert widths == pytest.approx(worked, abs=12)


def test_how_much_of_a_column_is_covered() -> None:
    covered = _covered(np.array([0.25, 1.5]), np.array([0.75, 3.0]))
    assert covered[:4].tolist() == [0.5, 0.5, 1.0, 0.0]
    assert covered.sum() == pytest.approx(2.0)
    assert _covered(np.zeros(0), np.zeros(0)).sum() == 0.0
