"""A large report: its size, the time until it is drawn, and its frame rate, against the targets in README.md.

    python benchmarks/report/main.py            all repeats, about a minute
    python benchmarks/report/main.py --quick    fewer repeats, under 50 seconds

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import penstock
from penstock.report import ReportSubject
from penstock.report.html import render_page
from penstock.report.html.payload import page_data

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.browser import Page, running_browser

MAX_OPEN_S = 2.0
MIN_FRAMES = 30.0
BYTES_PER_ACTION = 60
FIXED_BYTES = 150_000

# Zooms in and out again, one step per frame, and returns the time of each frame.
ZOOM = """
new Promise(done => {{
  const {{ view, app }} = globalThis.penstockReport;
  const times = [];
  let frame = 0;
  const step = now => {{
    times.push(now);
    if (frame++ === {frames}) return done(times.slice(1).map((time, i) => time - times[i]));
    view.zoom(frame <= {frames} / 2 ? {factor} : 1 / {factor}, app.total * 0.4);
    requestAnimationFrame(step);
  }};
  requestAnimationFrame(step);
}})
"""


class Line(NamedTuple):
    """One target with its measurement."""

    what: str
    measured: str
    target: str
    is_met: bool


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 2 if parser.parse_args().quick else 7
    timeline, shown = _large()
    num = timeline.program.num_actions
    start_time = time.perf_counter()
    html = render_page(page_data([shown], title="large", with_baselines=False))
    render_s = time.perf_counter() - start_time
    print(f"{num:,} actions on {len(timeline.program.devices)} devices; the report was made in {render_s:.1f} s")
    most = BYTES_PER_ACTION * num + FIXED_BYTES
    per_action = (len(html) - FIXED_BYTES) / num
    lines = [
        Line(
            "file size",
            f"{len(html):,} bytes (150 KB and {per_action:.1f} an action)",
            f"{most:,} bytes (150 KB and 60 an action)",
            len(html) <= most,
        )
    ]
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        path = Path(folder) / "large.html"
        path.write_bytes(html)
        page = browser.new_page()
        page.resize(1280, 900)
        opened = [_open_s(page, path) for _ in range(repeats)]
        lines.append(_at_most("opens, drawn", opened, MAX_OPEN_S))
        for what, prepare in _views().items():
            prepare(page)
            rates = [_frames_per_s(page) for _ in range(repeats)]
            lines.append(_at_least(f"zoom, {what}", rates, MIN_FRAMES))
    for line in lines:
        print(f"{line.what}: target {line.target}, measured {line.measured}, {'ok' if line.is_met else 'short'}")
    return 0 if all(line.is_met for line in lines) else 1


def _views() -> dict[str, Callable[[Page], None]]:
    def show(state: str) -> Callable[[Page], None]:
        def prepare(page: Page) -> None:
            page.run(f"penstockReport.app.update({state})")
            page.settle()

        return prepare

    return {
        "by kind": show("{}"),
        "by micro-batch": show("{colour: 'microbatch'}"),
        "with the critical path": show("{colour: 'kind', critical: true}"),
        "with all links": show(
            "{critical: false, open: penstockReport.app.models[0].tracks.map((_, device) => `0.${device}`)}"
        ),
    }


def _large() -> tuple[penstock.Timeline, ReportSubject]:
    """64 stages, 224 micro-batches, split backward."""
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-40"], micro_batch_size=1)
    cluster = penstock.load_cluster("8 x 8 x A100-40 @ 100 GB/s / 12.5 GB/s")
    plan = penstock.plan(profile, cluster, 224, planner="balanced", schedule="zb_h1")
    evaluation = penstock.evaluate(plan, profile, cluster)
    return evaluation.timeline, ReportSubject("large", evaluation.timeline, evaluation.costs, profile)


def _open_s(page: Page, path: Path) -> float:
    page.open(path)
    # From the start of the navigation to the end of the first drawing, by the browser's own clock.
    return float(page.run("penstockReport.view.firstDrawn")) / 1e3


def _frames_per_s(page: Page) -> float:
    page.run("penstockReport.app.update({from: null, to: null})")
    page.settle()
    frame_times: list[float] = page.run(ZOOM.format(frames=80, factor=1.12))
    return 1e3 / statistics.mean(frame_times)


def _at_most(what: str, values: list[float], target: float) -> Line:
    middle = statistics.median(values)
    return Line(what, f"{middle:.2f} s ({min(values):.2f} to {max(values):.2f})", f"{target:g} s", middle <= target)


def _at_least(what: str, values: list[float], target: float) -> Line:
    middle = statistics.median(values)
    spread = f"{min(values):.0f} to {max(values):.0f}"
    return Line(what, f"{middle:.0f} frames/s ({spread})", f"{target:g} frames/s", middle >= target)


if __name__ == "__main__":
    sys.exit(main())
