"""Plans in notebooks: well-formed, blocks where stages are, names as text."""

import re
from xml.etree import ElementTree

import msgspec

from penstock.plan.notebook import COLOURS, LEFT, WIDTH
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.report.html.script_bundle import source

EVIL = "<script>alert('1')</script>"
PLAN = Plan(
    planner="auto",
    schedule="1f1b",
    num_microbatches=8,
    micro_batch_size=4,
    profile=Origin(name=EVIL, digest="x"),
    cluster=Origin(name="two", digest="y"),
    stages=(
        Stage(start=0, stop=1, forward=on("d0"), backward=on("d1")),
        Stage(start=1, stop=4, forward=on("d1", EVIL), backward=on("d1", EVIL)),
    ),
)


def test_blocks_are_where_stages_are() -> None:
    html = PLAN._repr_html_()
    root = ElementTree.fromstring(html)
    rects = [(float(item.attrib["x"]), item.attrib["fill"], float(item.attrib["height"])) for item in root.iter("rect")]
    quarter = LEFT + WIDTH / 4
    assert rects == [
        (LEFT, COLOURS[0], 30.0), (quarter, COLOURS[1], 15.0), (quarter, COLOURS[2], 15.0),
        (LEFT, COLOURS[1], 30.0), (quarter, COLOURS[1], 15.0), (quarter, COLOURS[2], 15.0),
    ]  # fmt: skip
    assert "8 micro-batches of 4 rows, 2 stages on 3 devices" in html


def test_names_are_text() -> None:
    html = PLAN._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_many_devices_are_not_all_named() -> None:
    stages = tuple(
        Stage(start=number, stop=number + 1, forward=on(f"d{number}"), backward=on(f"d{number}"))
        for number in range(40)
    )
    html = msgspec.structs.replace(PLAN, stages=stages)._repr_html_()
    assert "and 24 more" in html
    ElementTree.fromstring(html)


def test_notebook_and_report_have_the_same_colours() -> None:
    found = re.search(r"const DEVICES = \[(.*?)\]", source("ui/colours.mjs"))
    assert found is not None
    assert tuple(re.findall(r"#[0-9a-f]{6}", found[1])) == COLOURS
