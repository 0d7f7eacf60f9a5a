"""Nothing on the page sticks out or is cut, bars say what they stand for, and what was not measured is marked."""

from pathlib import Path

import pytest

from tests.support.browser import Page
from tests.support.report_page import action_place, opened


def test_the_timeline_scrolls_only_where_it_must(page: Page, report: Path) -> None:
    size = "(frame => [frame.scrollHeight, frame.clientHeight])(document.querySelector('.frame'))"
    opened(page, report, "hidden=2")
    whole, seen = page.run(size)
    assert whole == seen
    page.resize(1280, 420)
    opened(page, report)
    whole, seen = page.run(size)
    assert whole > seen


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


def test_bars_of_what_would_help_are_as_long_as_the_gains(page: Page, report: Path) -> None:
    page.open(report)
    now, helps = page.run("(m => [m.iteration, m.helps.map(h => h.seconds)])(penstockReport.app.models[0])")
    gains = [now - seconds for seconds in helps]
    assert len(gains) >= 2
    bars = page.run("[...document.querySelectorAll('.help .load')].map(e => e.firstChild.clientWidth / e.clientWidth)")
    assert bars == pytest.approx([gain / max(gains) for gain in gains], abs=0.01)
    assert "the longest bar is" in page.run("document.querySelector('.helps figcaption').textContent")


def test_what_a_run_did_not_measure_is_marked(page: Page, report: Path) -> None:
    rows = "[...document.querySelectorAll('#compare tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    page.open(report, "about=1")
    found = {row[0]: row for row in page.run(rows)}
    assert [text.startswith("predicted ") for text in found["run"]] == [False] * 5 + [True] * 2 + [False] * 2
    assert not any("predicted" in text for text in found["balanced"])
    cards = page.run("[...document.querySelectorAll('.cards dt')].map(e => e.textContent)")
    told = [name for name in cards if "predicted" in name]
    assert told == ["was predicted", "peak memory, predicted", "traffic, predicted"]
    assert "over the bound" not in cards
    assert found["run"][7] == ""
    assert found["balanced"][7].endswith(" %")
    assert "so a run can be under them" in page.run("document.querySelector('#compare .hint').textContent")
    # What would help is simulated, so it is said of the prediction.
    assert "that were predicted; the longest" in page.run("document.querySelector('.helps figcaption').textContent")
    assert "predicted peak memory" in page.run("document.querySelector('#plan h3').textContent")
    page.open(report, "about=0")
    assert "predicted" not in page.run("document.querySelector('#plan h3').textContent")


def test_pointing_at_a_short_name_gives_the_whole(page: Page, report: Path) -> None:
    opened(page, report, "open=1.3")
    left = page.run("penstockReport.view.canvas.getBoundingClientRect().left")
    row = action_place(page, 1, 3, 0)["y"]
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
        place = page.run(
            f"(r => ({{ x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height, scale: 1 }}))"
            f"({box}.getBoundingClientRect())"
        )
        shot = page.call("Page.captureScreenshot", format="png", clip=place, captureBeyondViewport=True)
        found: int = page.run(LIGHTEST.format(data=shot["data"]))
        return found

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
    assert "Arrows point to who receives." in page.run("document.getElementById('cluster').textContent")
    boxes = "[...document.querySelectorAll('#cluster svg text.note:not(.over)')].map(e => e.textContent)"
    assert page.run(boxes) == [f"stage {number}" for number in range(4)]
