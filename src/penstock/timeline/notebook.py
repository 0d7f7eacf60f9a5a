"""A timeline as HTML for notebooks: one row per device. `penstock report` makes an interactive one."""

from html import escape

import numpy as np
import numpy.typing as npt

from penstock.arrays import Ints
from penstock.plan import ink_on
from penstock.program import NONE, Kind
from penstock.timeline.summary import bubble_fraction, device_uses
from penstock.timeline.types import Timeline
from penstock.units import show_count, show_percent, show_seconds

COLOURS = {
    Kind.F: ("#0072b2", "forward"),
    Kind.R: ("#a04f7d", "recompute"),
    Kind.B: ("#d55e00", "backward"),
    Kind.I: ("#e69f00", "input gradient"),
    Kind.W: ("#009e73", "weight gradient"),
    Kind.STEP: ("#8a8a8a", "step"),
}
WIDTH, ROW, LEFT = 900, 18, 110
MAX_ROWS = 32
MAX_SINGLE = 4_000
"""More jobs than this are not drawn one by one: each column of the picture then has the kind that fills most of it."""


def timeline_html(timeline: Timeline) -> str:
    """A summary line, the rows and the legend. Names are always text, never markup."""
    program, plan = timeline.program, timeline.program.plan
    names = [use.device for use in device_uses(timeline)]
    shown = names[:MAX_ROWS]
    words = (
        f"<b>{escape(plan.planner)} + {escape(plan.schedule)}</b>, {escape(timeline.origin)}: "
        f"{show_seconds(timeline.iteration_s)} for {show_count(plan.num_microbatches, 'micro-batch', 'es')}, "
        f"bubble {show_percent(bubble_fraction(timeline))}"
    )
    height = ROW * len(shown)
    head = (
        f'<svg viewBox="0 0 {LEFT + WIDTH} {height}" width="100%" font-family="sans-serif" font-size="11" '
        f'style="max-width:{LEFT + WIDTH}px;display:block;margin:6px 0" role="img" aria-label="timeline">'
    )
    parts = [head]
    single = int(timeline.is_compute.sum()) <= MAX_SINGLE
    kinds: set[Kind] = set()
    for row, name in enumerate(shown):
        device, y = program.devices.index(name), row * ROW
        begin = int(program.offsets[device])
        jobs = np.flatnonzero(timeline.is_compute[begin : int(program.offsets[device + 1])]) + begin
        parts.append(f'<text x="0" y="{y + 12}" fill="currentColor">{escape(_short(name))}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 3}" fill="#88888822"/>')
        parts += _single(timeline, jobs, y) if single else _columns(timeline, jobs, y)
        kinds |= {Kind(kind) for kind in np.unique(program.kind[jobs]).tolist()}
    parts.append("</svg>")
    legend = "".join(
        f'<span style="white-space:nowrap;margin-right:14px"><span style="color:{colour}">&#9632;</span> {text}</span>'
        for kind, (colour, text) in COLOURS.items()
        if kind in kinds
    )
    more = f"<span>and {show_count(len(names) - len(shown), 'more device')}</span>" if len(names) > len(shown) else ""
    return f'<div style="line-height:1.5">{words}{"".join(parts)}<div>{legend}{more}</div></div>'


def _single(timeline: Timeline, jobs: Ints, y: int) -> list[str]:
    program = timeline.program
    scale = WIDTH / timeline.iteration_s if timeline.iteration_s > 0 else 0.0
    found = []
    for job in jobs.tolist():
        start, end = float(timeline.start_s[job]), float(timeline.end_s[job])
        if end <= start:
            continue
        colour, _ = COLOURS[Kind(int(program.kind[job]))]
        width = (end - start) * scale
        title = f"{program.action(job)}: {show_seconds(start)} to {show_seconds(end)}"
        found.append(
            f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{max(0.3, width - 0.4):.2f}" height="{ROW - 3}" '
            f'fill="{colour}"><title>{escape(title)}</title></rect>'
        )
        number = int(program.microbatch[job])
        if number != NONE and width >= 6 + 6 * len(str(number)):
            found.append(
                f'<text x="{LEFT + (start * scale + width / 2):.1f}" y="{y + 11}" text-anchor="middle" '
                f'fill="{ink_on(colour)}" font-size="9">{number}</text>'
            )
    return found


def _columns(timeline: Timeline, jobs: Ints, y: int) -> list[str]:
    """Runs of columns that are mostly of one kind."""
    scale = WIDTH / timeline.iteration_s
    cover = np.zeros((len(COLOURS), WIDTH + 1))
    kind = timeline.program.kind[jobs]
    start, end = timeline.start_s[jobs] * scale, timeline.end_s[jobs] * scale
    for row in range(len(COLOURS)):
        mine = kind == row
        cover[row] = _covered(start[mine], end[mine])
    # The number of filled columns up to any column is the busy time up to it, so the picture shows the right bubble.
    filled = np.diff(np.floor(np.cumsum(cover.sum(axis=0)) + 0.5), prepend=0.0) > 0
    main = np.where(filled, cover.argmax(axis=0), NONE)[:WIDTH]
    begins = np.flatnonzero(np.diff(main, prepend=NONE - 1))
    stops = np.append(begins[1:], WIDTH)
    return [
        f'<rect x="{LEFT + begin}" y="{y}" width="{stop - begin}" height="{ROW - 3}" '
        f'fill="{COLOURS[Kind(int(main[begin]))][0]}"/>'
        for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)
        if main[begin] != NONE
    ]


def _covered(start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How much of each column these stretches fill: the difference of what they fill up to its two edges."""
    edges = np.arange(WIDTH + 2, dtype=np.float64)
    before = np.zeros(WIDTH + 2)
    for at, sign in ((np.sort(start), 1.0), (np.sort(end), -1.0)):
        # The sum over stretches of max(0, edge - at), by running sums of the sorted ends.
        sums = np.append(0.0, np.cumsum(at))
        index = np.searchsorted(at, edges)
        before += sign * (index * edges - sums[index])
    return np.diff(before)


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:8]}…{name[-7:]}"
