"""Nothing on the page overflows or is cut, bars are labelled, and predicted values of a run are marked."""

from pathlib import Path

import pytest

from tests.support.browser import Page
from tests.support.report_page import action_position, opened


def test_the_timeline_scrolls_only_where_it_must(page: Page, report: Path) -> None:
    size = "(frame => [frame.scrollHeight, frame.clientHeight])(document.querySelector('.frame'))"
    opened(page, report, "hidden=2")
    full, visible = page.run(size)
    assert full == visible
    page.resize(1280, 420)
    opened(page, report)
    full, visible = page.run(size)
    assert full > visible


@pytest.mark.parametrize("width", [1280, 700, 390])
def test_labels_of_loads_stay_inside_and_in_line(page: Page, report: Path, width: int) -> None:
    page.resize(width, 900)
    opened(page, report)
    edge = page.run("document.querySelector('main').getBoundingClientRect().right")
    texts = page.run(
        """[...document.querySelectorAll('.load-figures small')].map(small => {
          const range = document.createRange();
          range.selectNodeContents(small);
          return [small.textContent, range.getBoundingClientRect().right];
        })"""
    )
    assert len(texts) == 4
    assert all(" of 16.0 GB" in text and right <= edge for text, right in texts), (edge, texts)
    bars = page.run(
        "[...document.querySelectorAll('.load-row .load')].map(e => [e.getBoundingClientRect().left, e.clientWidth])"
    )
    assert len({tuple(bar) for bar in bars}) == 1
    assert bars[0][1] > 150


def test_bars_of_improvements_are_as_long_as_the_gains(page: Page, report: Path) -> None:
    page.open(report)
    seconds = "(m => [m.iteration, m.improvements.map(change => change.seconds)])(penstockReport.app.models[0])"
    now, changed = page.run(seconds)
    gains = [now - seconds for seconds in changed]
    assert len(gains) >= 2
    bars = page.run(
        "[...document.querySelectorAll('.improvement .load')].map(e => e.firstChild.clientWidth / e.clientWidth)"
    )
    assert bars == pytest.approx([gain / max(gains) for gain in gains], abs=0.01)
    assert "the longest bar is" in page.run("document.querySelector('.improvements figcaption').textContent")


def test_predicted_values_of_a_run_are_marked(page: Page, report: Path) -> None:
    rows = "[...document.querySelectorAll('#compare tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    page.open(report, "about=1")
    cells = {row[0]: row for row in page.run(rows)}
    assert [text.startswith("predicted ") for text in cells["run"]] == [False] * 5 + [True] * 2 + [False] * 2
    assert not any("predicted" in text for text in cells["balanced"])
    cards = page.run("[...document.querySelectorAll('.cards dt')].map(e => e.textContent)")
    predicted = [name for name in cards if "predicted" in name]
    assert predicted == ["predicted iteration", "peak memory, predicted", "traffic, predicted"]
    assert "gap to bound" not in cards
    assert cells["run"][7] == ""
    assert cells["balanced"][7].endswith(" %")
    hint = page.run("document.querySelector('#compare .hint').textContent")
    assert "so a run can be below them" in hint
    assert "with 8 micro-batches of 2\u00a0rows can be faster than" in hint
    # Improvements are simulated, so they are those of the prediction.
    caption = page.run("document.querySelector('.improvements figcaption').textContent")
    assert caption.startswith("Savings by one change at a time, of the predicted ")
    assert "predicted peak memory" in page.run("document.querySelector('#plan h3').textContent")
    page.open(report, "about=0")
    assert "predicted" not in page.run("document.querySelector('#plan h3').textContent")


def test_pointing_at_a_short_name_gives_the_whole(page: Page, report: Path) -> None:
    opened(page, report, "open=1.3")
    left = page.run("penstockReport.view.canvas.getBoundingClientRect().left")
    row = action_position(page, 1, 3, 0)["y"]
    title = "penstockReport.view.canvas.title"
    page.mouse("mouseMoved", left + 40, row)
    assert page.run(title) == "h1.d1 <b><script>alert(1)</script></b>"
    page.mouse("mouseMoved", left + 40, row + 22)
    assert page.run(title) == "h1.d1 <b><script>alert(1)</script></b> → h1.d0"
    page.mouse("mouseMoved", left + 400, row)
    assert page.run(title) == ""


# The lightest that a part of a screenshot has at its right edge, all three colours added.
LIGHTEST = """(async () => {{
  const image = await createImageBitmap(new Blob([Uint8Array.from(atob("{data}"), (letter) => letter.charCodeAt(0))]));
  const copy = new OffscreenCanvas(image.width, image.height).getContext("2d");
  copy.drawImage(image, 0, 0);
  const {{ data }} = copy.getImageData(image.width - 2, 0, 2, image.height);
  let most = 0;
  for (let at = 0; at < data.length; at += 4) most = Math.max(most, data[at] + data[at + 1] + data[at + 2]);
  return most;
}})()"""


def test_a_table_that_scrolls_shows_that_there_is_more(page: Page, report: Path) -> None:
    page.resize(390, 900)
    page.open(report)
    box = "document.querySelector('#compare .scroll-x')"
    assert page.run(f"[{box}.tabIndex, {box}.getAttribute('role'), {box}.getAttribute('aria-label').length > 0]") == [
        0,
        "region",
        True,
    ]
    assert page.run(f"{box}.scrollWidth > {box}.clientWidth + 40")

    def lightest() -> int:
        page.settle()
        position = page.run(
            f"(r => ({{ x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height, scale: 1 }}))"
            f"({box}.getBoundingClientRect())"
        )
        shot = page.call("Page.captureScreenshot", format="png", clip=position, captureBeyondViewport=True)
        brightness: int = page.run(LIGHTEST.format(data=shot["data"]))
        return brightness

    page.run(f"{box}.scrollLeft = 0")
    shaded = lightest()
    page.run(f"{box}.scrollLeft = 10000")
    assert lightest() == 3 * 255  # nothing more: the page's white
    assert shaded < 3 * 255 - 60


def test_long_names_to_choose_from_stay_inside(page: Page, report: Path) -> None:
    page.resize(390, 900)
    page.open(report)
    page.run("document.querySelector('.about option').textContent = 'a plan for a large model '.repeat(9)")
    ends = "['main', '.about select'].map(name => document.querySelector(name).getBoundingClientRect().right)"
    edge, right = page.run(ends)
    assert right <= edge


def test_links_say_where_they_lead(page: Page, report: Path) -> None:
    page.resize(390, 900)
    page.open(report)
    count = "document.querySelectorAll('#cluster {}').length"
    assert page.run(count.format("svg .link")) == page.run(count.format("svg .arrow")) == 8
    # There and back between the same two are both labelled.
    assert page.run(count.format("svg .traffic")) == 8
    assert "Arrows point to the receiver." in page.run("document.getElementById('cluster').textContent")
    boxes = "[...document.querySelectorAll('#cluster svg text.note:not(.over)')].map(e => e.textContent)"
    assert page.run(boxes) == [f"stage {number}" for number in range(4)]
