"""Timelines and tables in the terminal, in colours or in letters.

Only the command line imports this module, because rich is slow to load. Names come from users' files, so they are added
as plain text and never parsed as rich markup.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.box import SIMPLE
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from penstock.printable_text import escape_text
from penstock.program import Kind
from penstock.report.analysis import group_waits, validate_timeline
from penstock.report.terminal.axis import time_axis
from penstock.report.terminal.cells import Block, Drawing, choose_devices, draw
from penstock.timeline import Timeline, bubble_fraction, device_uses
from penstock.units import show_bytes, show_count, show_percent, show_seconds

_MIN_COLUMNS = 20
_MAX_NAME_COLUMNS = 24
_IDLE = "."
_DIM = Style(dim=True)


class _Look(NamedTuple):
    """How a kind of action is drawn: in letters, and in colours (text on background) for both shades."""

    letter: str
    fill: str
    name: str
    dark: Style
    light: Style


def _look(letter: str, fill: str, name: str, dark: str, light: str) -> _Look:
    return _Look(letter, fill, name, Style.parse(dark), Style.parse(light))


# The colour-blind safe palette of Okabe and Ito, each colour with a lighter one.
_LOOKS = {
    Kind.F: _look("F", "-", "forward", "#ffffff on #0072b2", "#000000 on #56b4e9"),
    Kind.I: _look("I", "~", "input gradient", "#000000 on #e69f00", "#000000 on #f7d27c"),
    Kind.W: _look("W", "+", "weight gradient", "#000000 on #009e73", "#000000 on #7fd6bd"),
    Kind.B: _look("B", "=", "backward", "#000000 on #d55e00", "#000000 on #f5a26b"),
    Kind.R: _look("R", ":", "recompute", "#ffffff on #a04f7d", "#000000 on #e0a8c8"),
    Kind.STEP: _look("S", "#", "step", "#000000 on #909090", "#000000 on #c0c0c0"),
}


class TimelinePicture:
    """A timeline for `console.print`, as wide as the console, in colours or in letters as the console allows.

    Args:
        timeline: A simulated or measured timeline.
        devices: The names of the devices to draw; by default all used devices, at most 64.
    """

    def __init__(self, timeline: Timeline, *, devices: Sequence[str] | None = None) -> None:
        self.timeline = timeline
        self.devices = devices

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        colour = console.color_system is not None and not console.no_color
        yield timeline_text(self.timeline, options.max_width, colour=colour, devices=self.devices)


def timeline_text(timeline: Timeline, width: int, *, colour: bool = True, devices: Sequence[str] | None = None) -> Text:
    """A title, one row per device, the time axis and a legend, `width` columns wide.

    The number in a block is its micro-batch. Without colours, a letter for the kind comes before it, and a sign of that
    kind fills the rest of the block.
    """
    chosen, num_left_out = choose_devices(timeline) if devices is None else (tuple(devices), 0)
    names = [_short(escape_text(name)) for name in chosen]
    margin = max(map(cell_len, names), default=0) + 1
    num_columns = max(_MIN_COLUMNS, width - margin)
    drawing = draw(timeline, num_columns, devices=chosen)
    lines = [Text(_title(timeline))]
    for name, row in zip(names, drawing.rows, strict=True):
        line = Text(set_cell_size(name, margin))
        for block in row.blocks:
            line.append_text(_coloured(block) if colour else Text(_in_letters(block)))
        lines.append(line)
    if num_left_out:
        lines.append(Text(f"({num_left_out} of {len(chosen) + num_left_out} devices are not shown)", _DIM))
    lines += [Text(" " * margin + part, _DIM) for part in time_axis(timeline.iteration_s, num_columns)]
    lines += _legend(drawing, width, colour=colour)
    # A narrow terminal crops the rows instead of wrapping them.
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "crop"
    return text


def device_table(timeline: Timeline, memory_limits: Mapping[str, float | None]) -> Table:
    """A table of all used devices: busy time, bubbles, peak memory, memory limit and traffic.

    Args:
        timeline: A simulated or measured timeline.
        memory_limits: Bytes by device name; None or absent where the limit is not known.

    Returns:
        The table, without the column of limits where none is known.
    """
    validate_timeline(timeline)
    uses = device_uses(timeline)
    limited = any(memory_limits.get(use.device) is not None for use in uses)
    table = Table("device", box=SIMPLE)
    for heading in ("busy", "bubble", "inner bubble", "peak memory", *(("limit",) if limited else ()), "sent"):
        table.add_column(heading, justify="right")
    for use in uses:
        limit = memory_limits.get(use.device)
        cells = [
            Text(escape_text(use.device)),
            Text(show_seconds(use.busy_s)),
            Text(_part(use.bubble_s, timeline.iteration_s)),
            Text(_part(use.inner_bubble_s, timeline.iteration_s)),
            Text(show_bytes(use.peak_bytes)),
            Text(show_bytes(use.sent_bytes)),
        ]
        if limited:
            cells.insert(5, _limit(use.peak_bytes, limit))
        table.add_row(*cells)
    return table


def waits_table(timeline: Timeline, most: int = 5) -> Table:
    """A table of the longest waits, summed by device and by what the device waited for.

    Args:
        timeline: A simulated or measured timeline.
        most: The number of rows.

    Returns:
        The table. Its last row sums the waits that are not listed.
    """
    validate_timeline(timeline)
    table = Table(box=SIMPLE)
    table.add_column("share", justify="right")
    table.add_column("wait")
    groups = group_waits(timeline)
    for group in groups[:most]:
        table.add_row(Text(_part(group.waited_s, timeline.iteration_s)), Text(group.sentence))
    rest = groups[most:]
    if rest:
        waited_s = sum(group.waited_s for group in rest)
        table.add_row("", Text(f"{show_seconds(waited_s)} in {show_count(len(rest), 'more row')}", _DIM))
    return table


def _title(timeline: Timeline) -> str:
    num = timeline.program.plan.num_microbatches
    return (
        f"{escape_text(timeline.origin)}: {show_seconds(timeline.iteration_s)} for {num} "
        f"micro-batch{'es' if num != 1 else ''}, bubble {show_percent(bubble_fraction(timeline))}"
    )


def _coloured(block: Block) -> Text:
    if block.kind is None:
        return Text(_IDLE * block.num_cells, _DIM)
    look = _LOOKS[block.kind]
    return Text(block.label.ljust(block.num_cells), look.light if block.shade else look.dark)


def _in_letters(block: Block) -> str:
    """The letter of the kind, the micro-batch if it fits, and the kind's sign for the rest."""
    if block.kind is None:
        return _IDLE * block.num_cells
    look = _LOOKS[block.kind]
    letter = look.letter.lower() if block.shade else look.letter
    number = block.label if len(block.label) < block.num_cells else ""
    return (letter + number).ljust(block.num_cells, look.fill)


def _legend(drawing: Drawing, width: int, *, colour: bool) -> list[Text]:
    """Entries for the kinds in the drawing."""
    blocks = [block for row in drawing.rows for block in row.blocks]
    kinds = {block.kind for block in blocks}
    entries = []
    for kind, look in _LOOKS.items():
        if kind in kinds:
            mark = ("   ", look.dark) if colour else (look.letter + look.fill, Style())
            entries.append(Text.assemble(mark, f" {look.name}"))
    if None in kinds:
        entries.append(Text.assemble((_IDLE * 2, _DIM), " idle"))
    if any(block.shade for block in blocks):
        mark_of_shade = "lighter" if colour else "lower case"
        entries.append(Text(f"{mark_of_shade}: every second stage of a device"))
    return _packed(entries, width)


def _packed(entries: list[Text], width: int) -> list[Text]:
    """Entries side by side, on as many lines as needed."""
    lines: list[Text] = []
    for entry in entries:
        if lines and lines[-1].cell_len + 3 + entry.cell_len <= width:
            lines[-1].append("   ").append_text(entry)
        else:
            lines.append(entry)
    return lines


def _short(name: str) -> str:
    """Cut the middle out of a long name, so that host and number remain at either end."""
    if cell_len(name) <= _MAX_NAME_COLUMNS:
        return name
    half = (_MAX_NAME_COLUMNS - 2) // 2
    tail = len(name)
    while cell_len(name[tail - 1 :]) <= half:
        tail -= 1
    return set_cell_size(name, half) + ".." + name[tail:]


def _limit(peak_bytes: float, limit: float | None) -> Text:
    """A limit and the used share of it. A sign marks an exceeded limit also where there are no colours."""
    if limit is None:
        return Text("unknown", _DIM)
    used = f"{show_bytes(limit)} ({_part(peak_bytes, limit)})" if limit > 0 else show_bytes(limit)
    return Text(f"! {used}", "bold red") if peak_bytes > limit else Text(used)


def _part(value: float, whole: float) -> str:
    return show_percent(value / whole if whole > 0 else 0.0)
