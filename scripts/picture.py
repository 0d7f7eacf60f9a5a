"""Draws the picture of the README: python scripts/picture.py > docs/images/timelines.svg."""

import sys

import penstock
from penstock.program.actions import Kind
from penstock.timeline.summary import bubble_fraction

COLOURS = {
    Kind.F: "#0072b2",
    Kind.I: "#e69f00",
    Kind.W: "#009e73",
    Kind.B: "#d55e00",
    Kind.STEP: "#7f7f7f",
}
LEGEND = {Kind.F: "forward", Kind.B: "backward", Kind.I: "input gradient", Kind.W: "weight gradient", Kind.STEP: "step"}
LEFT, WIDTH, ROW = 64, 900, 16


def panel(timeline: penstock.Timeline, title: str, top: int, longest_s: float) -> tuple[list[str], int]:
    """One timeline: a row a device, time to the right, on the common scale."""
    parts = [f'<text x="0" y="{top + 12}" font-weight="bold">{title}</text>']
    top += 20
    scale = WIDTH / longest_s
    program = timeline.program
    for number, name in enumerate(program.devices):
        y = top + number * ROW
        parts.append(f'<text x="0" y="{y + 12}">{name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}" fill="#88888822"/>')
        for action in range(int(program.offsets[number]), int(program.offsets[number + 1])):
            kind = Kind(int(program.kind[action]))
            start, end = float(timeline.start_s[action]), float(timeline.end_s[action])
            if kind in COLOURS and end > start:
                x, width = LEFT + start * scale, (end - start) * scale
                parts.append(
                    f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.3):.2f}" height="{ROW - 2}" '
                    f'fill="{COLOURS[kind]}"/>'
                )
                if width > 12:
                    parts.append(
                        f'<text x="{x + width / 2:.1f}" y="{y + 11}" style="fill:#fff" font-size="9" '
                        'text-anchor="middle">'
                        f"{program.microbatch[action]}</text>"
                    )
    return parts, top + len(program.devices) * ROW + 10


def main() -> None:
    """Four ways to train gpt2-xl on two hosts of four, one above the other."""
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-40"], rows=4)
    cluster = penstock.load_cluster("examples/clusters/two-hosts.toml")
    found = {}
    for planner, schedule in (("uniform", "gpipe"), ("uniform", "1f1b"), ("balanced", "zb_h1"), ("balanced", "zb_v")):
        plan = penstock.plan(profile, cluster, 16, planner=planner, schedule=schedule)
        found[planner, schedule] = penstock.evaluate(plan, profile, cluster).timeline
    longest = max(timeline.iteration_s for timeline in found.values())
    parts: list[str] = []
    top = 4
    for (planner, schedule), timeline in found.items():
        bubble = f"{100 * bubble_fraction(timeline):.0f} % bubble"
        title = f"{planner} + {schedule}: {timeline.iteration_s * 1e3:.0f} ms, {bubble}"
        drawn, top = panel(timeline, title, top, longest)
        parts += drawn
    x = LEFT
    for kind, text in LEGEND.items():
        parts.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{x + 16}" y="{top + 10}">{text}</text>')
        x += 34 + 7 * len(text)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -4 {LEFT + WIDTH + 16} {top + 24}" '
        'font-family="sans-serif" font-size="12"><style>text{fill:#222}@media(prefers-color-scheme:dark)'
        "{text{fill:#ddd}}</style>"
    )
    sys.stdout.write("\n".join([head, *parts, "</svg>", ""]))


if __name__ == "__main__":
    main()
