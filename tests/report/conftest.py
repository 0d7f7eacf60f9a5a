"""One browser for all tests of a worker, and a report with all features."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.report.html.page import render_page
from penstock.report.html.payload.report_data import page_data
from penstock.report.subject import ReportSubject
from penstock.timeline.build import build_timeline
from tests.support.browser import Browser, Page, find_browser, running_browser

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find_browser() is None:
        assert not os.environ.get("CI"), "Chromium is missing: sh scripts/browser.sh"
        pytest.skip("Chromium is not installed: sh scripts/browser.sh")
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page, light and wide. In the end it must have no errors and no requests to the network."""
    new_page = browser.new_page()
    new_page.resize(1280, 900)
    new_page.prefer("light")
    yield new_page
    assert new_page.complaints == []
    assert [address for address in new_page.requests if not address.startswith(("file:", "blob:", "about:"))] == []
    new_page.call("Page.close")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plans and a measured run of the first, with scripts as names."""
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
    units = (msgspec.structs.replace(profile.units[0], name=EVIL), *profile.units[1:])
    profile = msgspec.structs.replace(profile, name=EVIL, units=units)
    plain = penstock.load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")
    devices = tuple(
        msgspec.structs.replace(device, name=f"{device.name} <b>{EVIL}</b>" if number == 3 else device.name)
        for number, device in enumerate(plain.devices)
    )
    cluster = msgspec.structs.replace(plain, devices=devices)
    items = []
    for planner, schedule in (("balanced", "1f1b"), ("uniform", "gpipe")):
        plan = penstock.plan(profile, cluster, 8, planner=planner, schedule=schedule)
        evaluation = penstock.evaluate(plan, profile, cluster)
        name = f"{planner} {EVIL}" if planner == "uniform" else planner
        items.append(ReportSubject(name, evaluation.timeline, evaluation.costs, profile))
        if planner == "balanced":
            times = evaluation.timeline.start_s * 1.3, evaluation.timeline.end_s * 1.3
            run = build_timeline(evaluation.proof, *times, "measured")
            items.append(ReportSubject("run", run, evaluation.costs, profile))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(render_page(page_data(items, title=f"{EVIL} here")))
    return path
