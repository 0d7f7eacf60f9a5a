"""Positions on a report's page, for tests in a browser."""

from pathlib import Path
from typing import Any

from tests.support.browser import Page

# The centre of an action or a gap of a timeline, in window coordinates.
POSITION = """
(() => {{
  const {{ app, view }} = penstockReport;
  const model = app.models[{model}];
  const scene = view.scene({{ hit: null }});
  const row = scene.layout.byKey.get("{model}.{device}");
  const [start, end] = {times};
  const part = ((start + end) / 2 * model.unit - scene.view.from) / (scene.view.to - scene.view.from);
  const box = view.canvas.getBoundingClientRect();
  return {{
    x: box.left + scene.left + part * (scene.width - scene.left),
    y: box.top + 26 + row.barY + row.barHeight / 2 - view.frame.scrollTop,
  }};
}})()
"""

# A copy of the timeline from which pixels can be read.
PIXELS = """(canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return copy;
})(penstockReport.view.canvas)"""


def action_position(page: Page, model: int, device: int, number: int) -> dict[str, float]:
    job = f"model.tracks[{device}].jobs[{number}]"
    times = f"[model.start[{job}], model.end[{job}]]"
    result: dict[str, float] = page.run(POSITION.format(model=model, device=device, times=times))
    return result


def gap_position(page: Page, model: int, device: int, number: int) -> dict[str, float]:
    gap = f"(model.gapBegins[{device}] + {number})"
    times = f"[model.gapStart[{gap}], model.partEnd[model.partBegins[{gap} + 1] - 1]]"
    result: dict[str, float] = page.run(POSITION.format(model=model, device=device, times=times))
    return result


def opened(page: Page, report: Path, fragment: str = "") -> Page:
    page.open(report, fragment)
    page.run("document.getElementById('timeline').scrollIntoView()")
    page.settle()
    return page


def state(page: Page) -> dict[str, Any]:
    result: dict[str, Any] = page.run("penstockReport.app.state")
    return result


def colours(page: Page) -> int:
    """The number of different colours of the timeline."""
    count: int = page.run(f"new Set(new Uint32Array({PIXELS}.getImageData(0, 0, 1200, 500).data.buffer)).size")
    return count
