"""Links of the documentation resolve, paths exist, commands fit the screen and have the options they show."""

import re
from pathlib import Path

import click
import pytest

import penstock
from penstock.cli.main import cli
from tests.docs.markdown import LINK, PAGES, Command, anchors, blocks, commands, name_of, prose
from tests.support.paths import DOCS, REPOSITORY, SOURCE

MAX_COLUMNS = 100

every_page = pytest.mark.parametrize("path", PAGES, ids=name_of)


@every_page
def test_links_resolve(path: Path) -> None:
    wrong = []
    for link in LINK.findall(prose(path.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(link)
    assert wrong == []


@every_page
def test_paths_exist(path: Path) -> None:
    """Paths in backticks, such as `plan/pricing/`, exist in the repository or in the source."""
    tops = {item.name for root in (REPOSITORY, SOURCE) for item in root.iterdir() if item.is_dir()} - {"build"}
    names = re.findall(r"`([\w-]+(?:/[\w.-]+)+/?)`", prose(path.read_text(encoding="utf-8")))
    wrong = [
        name
        for name in names
        if name.split("/")[0] in tops
        and "NAME" not in name
        and not any((root / name).exists() for root in (REPOSITORY, SOURCE))
    ]
    assert wrong == []


@every_page
def test_command_lines_fit(path: Path) -> None:
    lines = [line for command in commands(path) for line in command.lines]
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []


def _find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that `penstock WORDS` runs, and its arguments."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        # `penstock cluster FILE` is short for `penstock cluster show FILE`.
        name = words[0] if words[0] in command.list_commands(context) else "show"
        words = words[1:] if name == words[0] else words
        found = command.get_command(context, name)
        assert found is not None, f"no command {name!r}"
        command = found
    return command, words


def _arguments(command: Command) -> list[str] | None:
    """What follows `penstock` in a command line; None if it does not run Penstock or is abbreviated."""
    words = command.words
    if "penstock" not in words or "..." in words:
        return None
    following = words[words.index("penstock") + 1 :]
    return following if following and following[0] not in ("--help", "--version") else None


@every_page
def test_commands_parse(path: Path) -> None:
    """Every `penstock ...` in a code block parses: options exist, values have the right type, nothing is missing."""
    for item in commands(path):
        words = _arguments(item)
        if words is None or item.words[0] in ("git", "pip"):
            continue
        command, arguments = _find_command(words)
        try:
            command.make_context(command.name or "", list(arguments)).close()
        except click.ClickException as error:
            pytest.fail(f"{' '.join(item.lines)}: {error.format_message()}")


@every_page
def test_options_in_sentences_exist(path: Path) -> None:
    """Every option of a `penstock ...` in a sentence exists."""
    for code in re.findall(r"`penstock ([^`]+)`", prose(path.read_text(encoding="utf-8"))):
        words = code.split()
        if words[0].startswith("-") or not re.fullmatch(r"[a-z]+", words[0]):
            continue
        command, arguments = _find_command(words)
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
        assert [option for option in options if option not in known] == [], code


PYTHON = [
    pytest.param(block, id=f"{name_of(path)} {number}")
    for path in PAGES
    for number, block in enumerate(blocks(path.read_text(encoding="utf-8"), "python"))
    if block.startswith("import penstock\n")
]


@pytest.mark.parametrize("block", PYTHON)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that start with `import penstock` are complete programs."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    listed = re.findall(r"^::: penstock\.[\w.]*?\.(\w+)$", text, re.MULTILINE)
    public = {name for name in penstock.__all__ if name != "__version__"}
    assert public <= set(listed)
    assert len(listed) == len(set(listed))


def test_every_package_is_in_the_architecture() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
    assert rows == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
