"""One HTML file that shows plans and timelines: it needs no server, no network, and nothing beside itself.

Its policy forbids the browser to load or run anything that is not in it. Names from users' files are in its data only,
as JSON in which no "<" occurs, and its script puts them on the page as text.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from penstock import io
from penstock.profile import Profile
from penstock.report.html.bundle_scripts import compact_style, joined_script, source
from penstock.report.html.payload import PageData, page_data
from penstock.report.names import shown_name
from penstock.report.subject import Showable, Shown, as_shown, with_own_names
from penstock.report.text import with_problem_names


def save_report(items: Sequence[Showable], path: str | Path, *, profile: Profile | None = None) -> None:
    """Write a report about evaluations or timelines, whole or not at all.

    With the profile that the plans were made for, it also has words about units, bounds and what would help.
    """
    shown = with_own_names(with_problem_names([as_shown(item, profile) for item in items]))
    io.write_whole(path, render_page(page_data(shown, title=title_of(shown))))


def title_of(items: Sequence[Shown]) -> str:
    """What a report is about: the model and the cluster, if all have the same."""
    models = {item.plan.profile.name for item in items}
    clusters = {item.plan.cluster.name for item in items}
    if len(models) == 1 and len(clusters) == 1:
        return f"{shown_name(models.pop())} on {shown_name(clusters.pop())}"
    if len(models) == 1:
        return shown_name(models.pop())
    return f"{len(items)} plans"


def render_page(data: PageData) -> bytes:
    """The page as it is written."""
    style, script = compact_style(), joined_script()
    content = msgspec.json.encode(data.content).decode().replace("<", "\\u003c")
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
    # In one go, so that nothing in a part is taken for a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], source("page.html")).encode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
