"""A page with a hundred thousand actions: its size is limited; its times are measured and printed."""

import statistics
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.report.html.page import render_page
from penstock.report.html.payload.report_data import page_data
from penstock.report.subject import ReportSubject
from tests.support.browser import Page

FRAMES = """
new Promise(done => {
  const { view, app } = penstockReport;
  const times = [];
  const step = now => {
    times.push(now);
    if (times.length > 60) return done(times.slice(1).map((time, i) => time - times[i]));
    view.zoom(times.length <= 30 ? 1.15 : 1 / 1.15, app.total * 0.4);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


def test_a_hundred_thousand_actions(page: Page, tmp_path: Path, record_property: Any) -> None:
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-40"], micro_batch_size=1)
    cluster = penstock.load_cluster("8 x 8 x A100-40 @ 100 GB/s / 12.5 GB/s")
    plan = penstock.plan(profile, cluster, 226, planner="balanced", schedule="zb_h1")
    evaluation = penstock.evaluate(plan, profile, cluster)
    num = evaluation.program.num_actions
    assert num >= 100_000
    html = render_page(
        page_data(
            [ReportSubject("large", evaluation.timeline, evaluation.costs, profile)], title="t", with_baselines=False
        )
    )
    assert len(html) <= 60 * num + 150_000
    path = tmp_path / "large.html"
    path.write_bytes(html)
    page.open(path)
    opened = page.run("penstockReport.view.firstDrawn") / 1e3
    page.run("document.getElementById('timeline').scrollIntoView()")
    page.settle()
    taken = page.run(FRAMES)
    assert len(taken) == 60
    record_property(
        f"measured report of {num:,} actions",
        f"{(len(html) - 150_000) / num:.0f} bytes an action and 150 KB, opens in {opened:.2f} s, "
        f"{1e3 / statistics.mean(taken):.0f} frames a second",
    )
    page.run("penstockReport.app.update({ from: null, to: null, critical: true })")
    page.settle()
    assert page.run("penstockReport.app.models[0].path.length") == pytest.approx(
        len(penstock.critical_path(evaluation.timeline)), abs=0
    )
