"""Hooks of the documentation site (mkdocs.yml): pages from outside docs/, links, and the help of every command.

Links in Markdown files are relative paths inside the repository, so that they work in any viewer. The site holds
docs/X as X, and another file of the repository as repository/X; links are rewritten accordingly.
"""

import os
import posixpath
import re
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
INCLUDED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
    "benchmarks/*/README.md",
    "examples/**/*.md",
    "examples/**/*.py",
    "examples/**/*.ipynb",
    "examples/**/*.toml",
)
PREFIX = "repository/"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
HELP = "<!-- help of every command -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add files of the repository that pages link to."""
    for pattern in INCLUDED:
        for path in sorted(ROOT.glob(pattern)):
            name = PREFIX + path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rewrite links for the site, and fill in the help texts."""
    uri = page.file.src_uri
    markdown = LINK.sub(lambda match: match[1] + _site_link(match[2], uri, files) + match[3], markdown)
    return markdown.replace(HELP, _help_texts()) if HELP in markdown else markdown


def _repository_path(site_uri: str) -> str:
    return site_uri.removeprefix(PREFIX) if site_uri.startswith(PREFIX) else f"docs/{site_uri}"


def _site_link(link: str, uri: str, files: Files) -> str:
    """The link as the site needs it; unchanged where it already works or is not a path."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    target, mark, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_repository_path(uri)), target))
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    site = path.removeprefix("docs/") if path.startswith("docs/") else PREFIX + path
    if files.get_file_from_path(site) is None:
        return link
    return posixpath.relpath(site, posixpath.dirname(uri) or ".") + mark + anchor


def _help_texts() -> str:
    os.environ["COLUMNS"] = "96"
    from penstock.cli.main import cli

    return "\n".join(_help_of(cli, click.Context(cli, info_name="penstock", max_content_width=96)))


def _help_of(command: click.Command, context: click.Context) -> list[str]:
    lines = [f"## {context.command_path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            lines += _help_of(child, click.Context(child, info_name=name, parent=context, max_content_width=96))
    return lines
