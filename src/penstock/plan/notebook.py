"""A plan as notebooks show it: the model as a strip, forward above and backward below, coloured by device."""

from html import escape
from typing import TYPE_CHECKING

from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.plan.types import Group, Plan

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#6a5acd")
"""Distinguishable with any kind of colour vision (after Okabe and Ito). They repeat from the ninth device on."""

WIDTH, BAND, LEFT = 900, 30, 70
_LETTER = 6.6
MAX_NAMED = 16


def plan_html(plan: "Plan") -> str:
    """A summary line, the strip and the legend. Names are always text, never markup."""
    words = (
        f"<b>{escape(plan.planner)} + {escape(plan.schedule)}</b>: {escape(plan.profile.name)} on "
        f"{escape(plan.cluster.name)}, {show_count(plan.num_microbatches, 'micro-batch', 'es')} of "
        f"{show_count(plan.micro_batch_size, 'row')}, {show_count(plan.num_stages, 'stage')} on "
        f"{show_count(len(plan.devices), 'device')}"
    )
    head = (
        f'<svg viewBox="0 0 {LEFT + WIDTH} {2 * BAND + 6}" width="100%" font-family="sans-serif" font-size="12" '
        f'style="max-width:{LEFT + WIDTH}px;display:block;margin:6px 0" role="img" aria-label="layers by device">'
    )
    parts = [head]
    for row, name in enumerate(("forward", "backward")):
        y = row * (BAND + 4)
        parts.append(f'<text x="0" y="{y + BAND / 2 + 4}" fill="currentColor">{name}</text>')
        for stage in plan.stages:
            group = stage.forward if name == "forward" else stage.backward
            parts += _blocks(plan, group, stage.start, stage.stop, y)
    parts.append("</svg>")
    legend = "".join(
        f'<span style="white-space:nowrap;margin-right:14px"><span style="color:{_colour(number)}">&#9632;</span> '
        f"{escape(device)}</span>"
        for number, device in enumerate(plan.devices[:MAX_NAMED])
    )
    more = f"<span>and {len(plan.devices) - MAX_NAMED} more</span>" if len(plan.devices) > MAX_NAMED else ""
    return f'<div style="line-height:1.5">{words}{"".join(parts)}<div>{legend}{more}</div></div>'


def _blocks(plan: "Plan", group: "Group", start: int, stop: int, y: int) -> list[str]:
    """One block for each device of a group, stacked."""
    scale = WIDTH / plan.num_units
    x, width, height = LEFT + start * scale, (stop - start) * scale, BAND / len(group)
    found = []
    for row, replica in enumerate(group):
        top, device = y + row * height, escape(replica.device)
        layers = f"layers {start} to {stop - 1}" if stop - start > 1 else f"layer {start}"
        found.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(0.5, width - 1):.1f}" height="{height:.1f}" '
            f'fill="{_colour(plan.devices.index(replica.device))}"><title>{device}: {layers}</title></rect>'
        )
        if height >= 12 and len(replica.device) * _LETTER < width:
            found.append(
                f'<text x="{x + width / 2:.1f}" y="{top + height / 2 + 4:.1f}" text-anchor="middle" '
                f'fill="{ink_on(_colour(plan.devices.index(replica.device)))}">{device}</text>'
            )
    return found


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour.

    >>> ink_on("#0072b2"), ink_on("#e69f00")
    ('#fff', '#000')
    """
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "#000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.3 else "#fff"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
