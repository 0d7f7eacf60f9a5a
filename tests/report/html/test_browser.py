"""The page in a real browser: drawing, moving, tooltips and comparison."""

import re
from pathlib import Path

import pytest

from tests.support.browser import Page
from tests.support.report_page import action_position, colours, gap_position, opened, state


def test_it_draws_everything(page: Page, report: Path) -> None:
    opened(page, report)
    assert colours(page) > 8
    assert page.run("[...document.querySelectorAll('h2')].map(e => e.textContent)") == [
        "Summary", "Timeline", "Compare", "Plan", "Cluster"
    ]  # fmt: skip
    assert page.run("document.querySelector('.lead').textContent").startswith("An iteration of <script>alert(1)")
    assert page.run("document.querySelectorAll('.strip rect').length") == 8
    assert page.run("document.querySelectorAll('.strip .remote').length") == 0
    assert page.run("document.querySelectorAll('.cluster .device').length") == 4
    assert page.run("document.querySelectorAll('.cluster .link').length") >= 6
    assert page.run("document.querySelectorAll('.load-row').length") == 4


def test_names_are_text(page: Page, report: Path) -> None:
    page.call(
        "Page.addScriptToEvaluateOnNewDocument", source="globalThis.alert = () => { globalThis.alerted = true; };"
    )
    opened(page, report, "about=1")
    assert page.run("globalThis.alerted ?? false") is False
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('main b script, main script').length") == 0
    assert page.run("document.querySelector('h1').textContent") == "<script>alert(1)</script> here"
    position = action_position(page, 1, 3, 0)
    page.mouse("mouseMoved", **position)
    page.settle()
    assert "<b><script>alert(1)</script></b>" in page.run("document.querySelector('.tip').textContent")


def test_wheel_and_buttons_zoom_and_the_address_follows(page: Page, report: Path) -> None:
    opened(page, report)
    position = action_position(page, 1, 0, 3)
    before = page.run("penstockReport.view.numFrames")
    page.mouse("mouseWheel", **position, deltaX=0, deltaY=-240, modifiers=2)
    page.settle()
    current = state(page)
    total = page.run("penstockReport.app.total")
    assert current["to"] - current["from"] == pytest.approx(total / 2)
    assert page.run("penstockReport.view.numFrames") > before
    fragment = page.run("location.hash")
    assert re.match(r"#from=[\d.e-]+&to=[\d.e-]+$", fragment)
    page.mouse("mouseWheel", **position, deltaX=0, deltaY=240)  # without Ctrl the page scrolls
    page.settle()
    assert state(page)["to"] == current["to"]
    page.run("document.querySelector('[aria-label=\"show all\"]').click()")
    page.settle()
    assert state(page)["from"] is None
    assert page.run("location.hash") == ""
    page.run("document.querySelector('[aria-label=\"zoom in\"]').click()")
    page.settle()
    assert state(page)["from"] == pytest.approx(total / 4)
    # What was sent is what is seen.
    opened(page, report, fragment.removeprefix("#"))
    assert state(page)["from"] == pytest.approx(current["from"])


def test_dragging_moves(page: Page, report: Path) -> None:
    opened(page, report, "from=0.02&to=0.06")
    before = state(page)
    width = page.run("(s => s.width - s.left)(penstockReport.view.scene())")
    position = action_position(page, 1, 0, 8)
    x, y = 700.0, position["y"]
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", x - 50, y, button="left", buttons=1)
    page.mouse("mouseMoved", x - 100, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
    page.settle()
    assert state(page)["from"] - before["from"] == pytest.approx(0.04 * 100 / width, rel=0.02)
    assert state(page)["pick"] is None


def test_pointing_at_a_job_shows_its_numbers_and_lights_what_it_needed(page: Page, report: Path) -> None:
    opened(page, report)
    page.mouse("mouseMoved", **action_position(page, 2, 1, 0))
    page.settle()
    text = page.run("document.querySelector('.tip').innerText")
    assert "forward of stage 1, micro-batch 0" in text
    assert "needed\n0SEND_F0" in text
    assert re.search(r"memory\n[\d.]+ [GM]B of [\d.]+ GB", text)
    lit = page.run("[...penstockReport.view.scene().lit.get(2)].length")
    assert lit >= 3
    page.mouse("mouseMoved", 5, 5)
    page.settle()
    assert page.run("document.querySelector('.tip').hidden") is True


def test_pointing_at_a_gap_says_why(page: Page, report: Path) -> None:
    opened(page, report)
    page.mouse("mouseMoved", **gap_position(page, 2, 1, 0))
    page.settle()
    text = page.run("document.querySelector('.tip').innerText")
    assert re.search(r"waited [\d.]+ ms before 1F0", text)
    assert re.search(r"Waiting for activations 0SEND_F0 from h0\.d0, of which [\d.]+ us transfer\.", text)
    assert "was being transferred" in text
    assert "h0.d0 was running 0F0" in text


def test_predicted_over_measured_shows_the_error(page: Page, report: Path) -> None:
    opened(page, report)
    page.mouse("mouseMoved", **action_position(page, 1, 0, 2))
    page.settle()
    assert re.search(r"predicted [\d.]+ ms \(\+30\.0 %\)", page.run("document.querySelector('.tip').innerText"))
    rows = "penstockReport.view.scene().layout.rows.filter(row => row.type === 'title').map(row => row.model.number)"
    assert page.run(rows) == [1, 2]
    page.run("penstockReport.app.update({ over: false })")
    page.settle()
    assert page.run(rows) == [0, 1, 2]
    before = colours(page)
    page.run("penstockReport.app.update({ colour: 'error' })")
    page.settle()
    assert colours(page) != before
    assert "+30.0 %" in page.run("document.getElementById('compare').textContent")


def test_all_plans_are_on_one_axis(page: Page, report: Path) -> None:
    opened(page, report, "over=0")
    # The same second is at the same position in every timeline.
    centres = [action_position(page, model, 0, 0)["x"] for model in (0, 1, 2)]
    left, width = page.run("(s => [s.left, s.width - s.left])(penstockReport.view.scene())")
    for model, x in enumerate(centres):
        middle = page.run(f"(m => (m.end[0] - m.start[0]) / 2 * m.unit)(penstockReport.app.models[{model}])")
        total = page.run("penstockReport.app.total")
        box = page.run("penstockReport.view.canvas.getBoundingClientRect().left")
        assert x - box - left == pytest.approx(middle / total * width, abs=0.5)


def test_the_table_is_sorted_by_any_column(page: Page, report: Path) -> None:
    opened(page, report)
    first_cells = "[...document.querySelector('#compare tbody').children].map(row => row.children[{}].textContent)"

    def press(column: str) -> None:
        page.run(f"document.querySelector('[data-sort=\"{column}\"]').click()")
        page.settle()

    times = [float(text.split()[0]) for text in page.run(first_cells.format(1))[:4]]
    assert times == sorted(times)
    press("bubble")
    bubbles = [float(text.split()[0]) for text in page.run(first_cells.format(4))]
    # Three timelines, and other planners, of which balanced with 1F1B is there already.
    assert len(bubbles) == page.run("penstockReport.app.data.problems[0].length + 3 - 1")
    assert bubbles == sorted(bubbles)
    press("bubble")
    assert page.run("document.querySelector('[aria-sort=descending]').textContent") == "bubble ▼"
    assert page.run("location.hash") == "#sort=bubble&down=1"
    press("name")
    assert page.run("document.activeElement.dataset.sort") == "name"
