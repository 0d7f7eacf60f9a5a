"""The page in a real browser, with keyboard and touch, light and dark, on paper and in files."""

import base64
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.browser import Browser, Page
from tests.support.report_page import PIXELS, action_position, gap_position, opened, state


def test_the_keyboard_is_enough(page: Page, report: Path) -> None:
    opened(page, report)
    page.run("penstockReport.view.canvas.focus()")
    total = page.run("penstockReport.app.total")
    page.key("+")
    page.settle()
    size = state(page)["to"] - state(page)["from"]
    assert size == pytest.approx(total / 1.5)
    before = state(page)["from"]
    page.key("ArrowRight")
    page.settle()
    assert state(page)["from"] - before == pytest.approx(size / 10)
    page.key("ArrowLeft")
    page.key("-")
    page.settle()
    assert state(page)["from"] is None
    page.key("Enter")
    page.settle()
    first = state(page)["pick"]
    assert first is not None
    assert page.run("document.querySelector('.tip').hidden") is False
    seen = [first]
    for _ in range(4):
        page.key("Tab")
        page.settle()
        seen.append(state(page)["pick"] or state(page)["gap"])
    assert len(set(seen)) == 5
    page.key("Tab", shift=True)
    page.settle()
    assert (state(page)["pick"] or state(page)["gap"]) == seen[3]
    page.key("ArrowDown")
    page.settle()
    assert state(page)["pick"] is not None
    page.key("Escape")
    page.settle()
    assert state(page)["pick"] is None
    assert page.run("document.querySelector('.tip').hidden") is True
    page.key("Tab")
    page.settle()
    assert page.run("document.activeElement !== penstockReport.view.canvas") is True


def test_critical_path_links_and_memory(page: Page, report: Path) -> None:
    opened(page, report)
    plain = page.run("penstockReport.view.canvas.toDataURL()")
    seen = {plain}
    for change in (
        "{ critical: true }",
        "{ critical: false, memory: false }",
        "{ memory: true, colour: 'microbatch' }",
    ):
        page.run(f"penstockReport.app.update({change})")
        page.settle()
        seen.add(page.run("penstockReport.view.canvas.toDataURL()"))
    assert len(seen) == 4
    page.run("penstockReport.app.update({ colour: 'kind' })")
    page.settle()
    position = action_position(page, 1, 0, 0)
    left = page.run("penstockReport.view.canvas.getBoundingClientRect().left")
    page.click(left + 30, position["y"])
    page.settle()
    assert state(page)["open"] == ["1.0"]
    assert page.run("penstockReport.view.scene().layout.rows.filter(row => row.type === 'link').length") >= 1
    page.click(left + 30, position["y"])
    page.settle()
    assert state(page)["open"] == []


def test_dark_by_the_system_and_by_choice(page: Page, report: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    pixel = f"[...{PIXELS}.getImageData(3, 3, 1, 1).data].join()"
    opened(page, report)
    assert (page.run(back), page.run(pixel)) == ("rgb(255, 255, 255)", "255,255,255,255")
    page.prefer("dark")
    page.settle()
    assert (page.run(back), page.run(pixel)) == ("rgb(22, 27, 33)", "22,27,33,255")
    page.run(
        "(theme => { theme.value = 'light'; theme.dispatchEvent(new Event('change')); })"
        "(document.querySelector('[aria-label=Theme]'))"
    )
    page.settle()
    assert (page.run(back), page.run(pixel)) == ("rgb(255, 255, 255)", "255,255,255,255")
    assert page.run("location.hash") == "#theme=light"


def test_saving_as_svg_and_png(page: Page, report: Path, browser: Browser, tmp_path: Path) -> None:
    opened(page, report, "over=0&from=0&to=0.05")
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("SVG", "PNG"):
        page.run(f"document.querySelector('[aria-label=\"save as {name}\"]').click()")
    for _ in range(100):
        page.settle()
        current = {path.name: path for path in tmp_path.glob("timeline.???")}
        if len(current) == 2 and all(path.stat().st_size for path in current.values()):
            break
    root = ElementTree.fromstring(current["timeline.svg"].read_text())
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{space}text")]
    assert "uniform <script>alert(1)</script>" in texts
    assert len(list(root.iter(f"{space}rect"))) > 60
    assert not list(root.iter(f"{space}script"))
    png = current["timeline.png"].read_bytes()
    assert png.startswith(b"\x89PNG")
    width = int.from_bytes(png[16:20], "big")
    assert width == 2 * page.run("penstockReport.view.canvas.clientWidth")


def test_touch(page: Page, report: Path) -> None:
    page.resize(390, 844, mobile=True)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    opened(page, report)
    position = gap_position(page, 2, 1, 0)
    x, y = position["x"], position["y"]
    page.touch("touchStart", (x, y))
    page.touch("touchEnd")
    page.settle()
    assert "waited" in page.run("document.querySelector('.tip').innerText")
    assert page.run("document.querySelector('.tip').classList.contains('docked')") is True
    assert state(page)["gap"] is not None
    total = page.run("penstockReport.app.total")
    page.touch("touchStart", (200, y), (260, y))
    page.touch("touchMove", (190, y), (310, y))
    page.touch("touchMove", (180, y), (360, y))
    page.touch("touchEnd")
    page.settle()
    current = state(page)
    assert current["to"] - current["from"] == pytest.approx(total / 3, rel=0.05)


def test_printing_and_the_table(page: Page, report: Path) -> None:
    opened(page, report)
    page.run("document.querySelector('#table summary').click()")
    page.settle()
    assert page.run("document.querySelectorAll('#table tbody tr').length") > 15
    assert "was running" in page.run("document.querySelector('#table').textContent")
    page.call("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('{}')].map(e => getComputedStyle(e).display)"
    assert set(page.run(shown.format("nav, .buttons, .controls"))) == {"none"}
    assert page.run(shown.format("#timeline canvas")) == ["block"]
    page.call("Emulation.setEmulatedMedia", media="")
    current = page.call("Page.printToPDF", printBackground=True)
    assert base64.b64decode(current["data"]).startswith(b"%PDF")
