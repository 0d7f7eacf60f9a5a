"""Every planner and schedule has its papers, and a plan names those of all that it uses."""

import re

import msgspec
import pytest

from penstock.plan.citations import (
    BI_PARTITION,
    CONTROLLABLE_MEMORY,
    PIPEDREAM,
    PIPEDREAM_FLUSH,
    PLANNER_PAPERS,
    RING_ALL_REDUCE,
    SCHEDULE_PAPERS,
    SPP,
    SUBLINEAR_MEMORY,
    ZERO_BUBBLE,
    Paper,
    papers_behind,
)
from penstock.plan.types import Plan, on
from penstock.planners.registry import PLANNERS
from penstock.schedules.registry import SCHEDULES
from tests.support.strategies import two_stages

ALL = list(
    dict.fromkeys(paper for table in (PLANNER_PAPERS, SCHEDULE_PAPERS) for row in table.values() for paper in row)
)


def _plan(planner: str, schedule: str) -> Plan:
    made = two_stages(num_microbatches=1).plan
    return msgspec.structs.replace(made, planner=planner, schedule=schedule)


def test_every_name_has_an_entry() -> None:
    assert set(PLANNER_PAPERS) == set(PLANNERS)
    assert set(SCHEDULE_PAPERS) == set(SCHEDULES)
    assert all(SCHEDULE_PAPERS.values())


def test_what_a_plan_uses() -> None:
    assert papers_behind(_plan("uniform", "1f1b")) == (PIPEDREAM, PIPEDREAM_FLUSH)
    assert papers_behind(_plan("spp", "pe")) == (SPP,)
    assert papers_behind(_plan("balanced", "zb_v")) == (ZERO_BUBBLE, CONTROLLABLE_MEMORY)
    assert papers_behind(_plan("auto", "auto")) == (SPP, BI_PARTITION, ZERO_BUBBLE)
    assert papers_behind(_plan("mine", "mine")) == ()
    plan = _plan("uniform", "zb_h1")
    first = plan.stages[0]
    for change, paper in (
        ({"backward": on("d1")}, BI_PARTITION),
        ({"forward": on("d0", "d1"), "backward": on("d0", "d1")}, RING_ALL_REDUCE),
        ({"recompute": True}, SUBLINEAR_MEMORY),
    ):
        stage = msgspec.structs.replace(first, **change)
        changed = msgspec.structs.replace(plan, stages=(stage, *plan.stages[1:]))
        assert papers_behind(changed) == (ZERO_BUBBLE, paper)


def test_cite() -> None:
    text = _plan("dapple", "1f1b").cite()
    lines = text.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("Shiqing Fan, ")
    assert "PipeDream: Generalized Pipeline Parallelism for DNN Training" in lines[1]
    assert _plan("mine", "mine").cite() == ""


@pytest.mark.parametrize("paper", ALL, ids=lambda paper: paper.key)
def test_bibtex(paper: Paper) -> None:
    entry = paper.bibtex
    match = re.fullmatch(r"@(\w+)\{(\w+),\n(.*)\n\}", entry, re.DOTALL)
    assert match is not None
    kind, key, body = match.groups()
    assert key == paper.key
    assert kind == ("article" if paper.journal else "inproceedings" if paper.conference else "misc")
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE))
    assert len(fields) == len(body.splitlines())
    assert fields["author"].split(" and ") == list(paper.authors)
    assert fields["title"] == f"{{{paper.title}}}"
    assert fields["year"] == str(paper.year)
    assert entry.count("{") == entry.count("}")
    assert not (paper.journal and paper.conference)
    assert paper.url.startswith("https://")


def test_keys_are_unique() -> None:
    assert len({paper.key for paper in ALL}) == len(ALL)
    entries = _plan("auto", "1f1b").cite(bibtex=True)
    assert entries.count("\n@") == 4
