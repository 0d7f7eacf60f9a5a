"""Screenshots of a report for docs/report.md: python scripts/screenshots.py report.html (requires Chromium)."""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.browser import Page, running_browser

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "images"
# The longest gap with several reasons before an action of a timeline.
LONGEST_GAP = """(model => {
  let best = 0, longest = 0;
  for (let gap = 0; gap < model.gapCount; gap++) {
    const size = model.partEnd[model.partBegins[gap + 1] - 1] - model.gapStart[gap];
    if (model.gapBefore[gap] && model.gapParts[gap] > 2 && size > longest) [best, longest] = [gap, size];
  }
  return `${model.number}.${best}`;
})(penstockReport.app.models[NUMBER])"""


def main(report: Path) -> None:
    """Take all screenshots."""
    with running_browser() as browser:
        page = browser.new_page()
        page.resize(1280, 860)
        page.prefer("light")
        page.open(report)
        gap = page.run(LONGEST_GAP.replace("NUMBER", "1"))
        action = page.run("(m => `${m.number}.${m.tracks[2].jobs[24]}`)(penstockReport.app.models[3])")
        _shoot(page, report, f"hidden=0,2,3&gap={gap}", "report-gap.png", at="timeline")
        _shoot(page, report, "hidden=0,1&critical=1", "report-compare.png", at="timeline")
        page.prefer("dark")
        _shoot(page, report, f"hidden=0,1,2&open=3.1,3.2&pick={action}", "report-dark.png", at="timeline")
        _shoot(page, report, "about=3", "report-plan.png", at="compare")
        page.prefer("light")
        page.resize(1280, 345)
        _shoot(page, report, "about=3", "report-cluster.png", at="cluster")
        page.resize(390, 844)
        _shoot(page, report, "about=3&hidden=0,1,2", "report-narrow.png", at="timeline")


def _shoot(page: Page, report: Path, fragment: str, name: str, *, at: str) -> None:
    page.open(report, fragment)
    page.settle()
    page.run(f"document.getElementById('{at}').scrollIntoView()")
    page.settle()
    page.run("dispatchEvent(new HashChangeEvent('hashchange'))")
    page.settle()
    path = FOLDER / name
    page.screenshot(path)
    # Flat pictures need few colours.
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "96", str(path)], check=True)
    sys.stdout.write(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
