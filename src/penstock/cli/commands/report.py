"""penstock report: one HTML file that shows plans and timelines."""

import click

from penstock.cli.console import Screen, screen_options
from penstock.cli.options import check_outputs
from penstock.cli.render import report_data, shown_items

DEFAULT_OUTPUT = "report.html"


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", default=DEFAULT_OUTPUT, show_default=True, help="Write the page to this file.")
@click.option("--profile", "source", help="Another profile than the one that the files name.")
@click.option("--cluster", help="Another cluster than the one that the files name.")
@click.option("--force", is_flag=True, help="Go on with a profile or cluster that a plan was not made for.")
@click.option("--no-baselines", is_flag=True, help="Do not ask other planners for the table that compares.")
@screen_options
def command(
    screen: Screen,
    paths: tuple[str, ...],
    output: str,
    source: str | None,
    cluster: str | None,
    force: bool,
    no_baselines: bool,
) -> None:
    """One HTML file that shows plans and timelines; it opens in any browser, without a network.

    FILE is a plan, a program, or a timeline, simulated or measured; several are shown on one axis. With a measured
    timeline goes what was predicted for it.
    """
    from penstock.io import write_whole
    from penstock.report.html import render_page, title_of
    from penstock.report.html.payload import page_data
    from penstock.report.terminal import TimelinePicture

    check_outputs((*paths, source, cluster), (output,))
    items = shown_items(screen, paths, profile=source, cluster=cluster, force=force)
    with screen.working("looking at what limits it, and what would help"):
        data = page_data(items, title=title_of(items), with_baselines=not no_baselines)
    page = render_page(data)
    write_whole(output, page)
    if screen.as_json:
        screen.data(report_data(items, data, output, len(page)))
    for item, words in zip(items, data.words, strict=True):
        screen.show("", f"{item.name}", TimelinePicture(item.timeline), "", words.lead, *words.sentences)
    screen.show("")
    screen.wrote(output)
    screen.next(f"open {output} in a browser")
