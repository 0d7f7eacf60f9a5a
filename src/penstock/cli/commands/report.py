"""penstock report: one HTML file that shows plans and timelines."""

import click

from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs
from penstock.cli.workflows import read_report_items, report_data

DEFAULT_OUTPUT = "report.html"


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", default=DEFAULT_OUTPUT, show_default=True, help="Write the page to this file.")
@click.option("--profile", "source", help="Use this profile instead of the one that the files name.")
@click.option("--cluster", help="Use this cluster instead of the one that the files name.")
@click.option("--force", is_flag=True, help="Accept a profile or cluster that differs from the plan's.")
@click.option("--no-baselines", is_flag=True, help="Omit the baselines.")
@console_options
def command(
    console: Console,
    paths: tuple[str, ...],
    output: str,
    source: str | None,
    cluster: str | None,
    force: bool,
    no_baselines: bool,
) -> None:
    """Write one HTML file that shows plans and timelines. It opens in any browser, offline.

    FILE is a plan, a program, or a timeline, simulated or measured. Several files share one time axis. A measured
    timeline is shown with its prediction.
    """
    from penstock.io import write_whole
    from penstock.report.html import render_page, title_of
    from penstock.report.html.payload import page_data
    from penstock.report.terminal import TimelinePicture

    check_outputs((*paths, source, cluster), (output,))
    items = read_report_items(console, paths, profile=source, cluster=cluster, force=force)
    with console.working("analysing"):
        data = page_data(items, title=title_of(items), with_baselines=not no_baselines)
    page = render_page(data)
    write_whole(output, page)
    if console.as_json:
        console.data(report_data(items, data, output, len(page)))
    for item, words in zip(items, data.summaries, strict=True):
        console.show("", f"{item.name}", TimelinePicture(item.timeline), "", words.lead, *words.sentences)
    console.show("")
    console.wrote(output)
    console.next(f"open {output} in a browser")
