"""No two texts overlap, on the page and on the canvas, wide and narrow, light and dark."""

from pathlib import Path

import pytest

from tests.support.browser import Page

# Records the texts of the canvas for each frame. A frame begins when the background is filled.
NOTE = """
globalThis.drawnTexts = [];
const { fillText, fillRect } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
  if (x === 0 && y === 0 && height > 100) globalThis.drawnTexts = [];
  return fillRect.call(this, x, y, width, height);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const { width, actualBoundingBoxAscent: up, actualBoundingBoxDescent: down } = this.measureText(text);
  const left = this.textAlign === "center" ? x - width / 2 : this.textAlign === "right" ? x - width : x;
  globalThis.drawnTexts.push({ text, left, right: left + width, top: y - up, bottom: y + down });
  return fillText.call(this, text, x, y);
};
"""

# Pairs of texts that overlap by more than a pixel in both directions, and texts that exceed the page.
OVERLAPS = """
(() => {
  const boxes = [];
  const clipOf = (element) => {
    const clip = { left: -Infinity, right: Infinity };
    for (let box = element; box; box = box.parentElement) {
      if (getComputedStyle(box).overflowX === "visible") continue;
      const { left, right } = box.getBoundingClientRect();
      clip.left = Math.max(clip.left, left);
      clip.right = Math.min(clip.right, right);
    }
    return clip;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || !parent.checkVisibility()) continue;
    if (parent.closest("script, style, noscript, option, title, .unseen, [hidden]")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const clip = clipOf(parent);
    for (const rect of range.getClientRects()) {
      // Only the visible part inside scrolling or clipping boxes counts.
      const [left, right] = [Math.max(rect.left, clip.left), Math.min(rect.right, clip.right)];
      if (right - left > 1 && rect.bottom - rect.top > 1) {
        boxes.push({ text: node.textContent, left, right, top: rect.top + 2, bottom: rect.bottom - 2, node });
      }
    }
  }
  const problems = [];
  const clash = (list, same) => {
    for (let i = 0; i < list.length; i++) for (let j = 0; j < i; j++) {
      const [a, b] = [list[i], list[j]];
      if (same(a, b)) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 1) problems.push([a.text, b.text, wide, tall]);
    }
  };
  clash(boxes, (a, b) => a.node === b.node);
  clash(globalThis.drawnTexts, () => false);
  const { right: edge } = document.querySelector("main").getBoundingClientRect();
  for (const { text, right, node } of boxes) {
    const most = node.parentElement.closest("main, header") ? edge : innerWidth;
    if (right > most + 1) problems.push([text, "exceeds the page", right - most]);
  }
  return problems;
})()
"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_overlaps(page: Page, report: Path, width: int, scheme: str) -> None:
    page.resize(width, 900)
    page.prefer(scheme)
    page.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE)
    for fragment in ("", "over=0&open=0.0,0.1,1.0&about=2", "from=0.01&to=0.02&colour=microbatch"):
        page.open(report, fragment)
        page.settle()
        assert page.run("globalThis.drawnTexts.length") > 5
        assert page.run(OVERLAPS) == []
        assert page.run("document.documentElement.scrollWidth") <= width
