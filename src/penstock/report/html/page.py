"""The report as one HTML file, which needs no server, no network and no other file.

Its content security policy forbids the browser to load or run anything else. Names from users' files occur only in its
data, as JSON without "<", and its script adds them to the page as text.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from penstock import io
from penstock.printable_text import escape_json, escape_text
from penstock.profile import Profile
from penstock.report.html.payload import PageData, page_data
from penstock.report.html.script_bundle import bundle_script, minify_style, source
from penstock.report.subject import ReportSubject, SubjectLike, as_subject, with_unique_names
from penstock.report.text import with_problem_names


def save_report(items: Sequence[SubjectLike], path: str | Path, *, profile: Profile | None = None) -> None:
    """Write an HTML report about evaluations or timelines, atomically.

    Args:
        items: Evaluations, timelines or report subjects, at least one.
        path: The HTML file to write.
        profile: The profile of the plans. With it the report also has layers, lower bounds and suggested changes.

    Raises:
        InputError: There is nothing to show, or too much for a page.
        FileError: The file cannot be written.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
        >>> cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
        >>> plan = penstock.plan(profile, cluster, 8, planner="balanced")
        >>> evaluation = penstock.evaluate(plan, profile, cluster)
        >>> penstock.save_report([evaluation], "report.html", profile=profile)  # doctest: +SKIP
    """
    subjects = with_unique_names(with_problem_names([as_subject(item, profile) for item in items]))
    io.write_whole(path, render_page(page_data(subjects, title=title_of(subjects))))


def title_of(items: Sequence[ReportSubject]) -> str:
    """The title of a report: the model and the cluster, if all subjects have the same.

    Args:
        items: The subjects of the report.

    Returns:
        The title, with unprintable characters escaped.
    """
    models = {item.plan.profile.name for item in items}
    clusters = {item.plan.cluster.name for item in items}
    if len(models) == 1 and len(clusters) == 1:
        return f"{escape_text(models.pop())} on {escape_text(clusters.pop())}"
    if len(models) == 1:
        return escape_text(models.pop())
    return f"{len(items)} plans"


def render_page(data: PageData) -> bytes:
    """Render the page.

    Args:
        data: The data of the report.

    Returns:
        The HTML file.
    """
    style, script = minify_style(), bundle_script()
    content = escape_json(msgspec.json.encode(_printable(msgspec.to_builtins(data.content))).decode()).replace(
        "<", "\\u003c"
    )
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": escape(data.content["title"]),
        "style": style,
        "script": script,
        "data": content,
    }
    # In one pass, so that no part is searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], source("page.html")).encode()


def _printable(content: object) -> object:
    """Escape every text of the page's data: a browser would show direction marks as other text."""
    if isinstance(content, str):
        return escape_text(content)
    if isinstance(content, dict):
        return {_printable(key): _printable(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_printable(value) for value in content]
    return content


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
