"""The page's sources as one script: small modules, put behind each other in the order in which they need each other.

The modules are plain ES modules, so that tests and editors read them as they are. A browser would fetch them one by
one, which a single file cannot do; so their imports and the word "export" go, and what is left is one scope.
"""

import re
from importlib.resources import files
from posixpath import dirname, normpath

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.\.?/[a-z_/.]+)\.mjs";\n', re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
_STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
_LINE_END = re.compile(r"([{};,])\n")
_INDENT = re.compile(r"^\s+", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |class |let )", re.MULTILINE)

ROOT_MODULE = "ui/main"


def joined_script(root: str = ROOT_MODULE) -> str:
    """All modules that the root needs, itself last; without comments and indents, to keep reports small."""
    text = "".join(_EXPORT.sub("", _IMPORT.sub("", source(f"{name}.mjs"))) for name in module_names(root))
    return _INDENT.sub("", _COMMENT.sub("", text))


def compact_style() -> str:
    """The page's style, likewise, and without line ends where they part nothing."""
    return _LINE_END.sub(r"\1", _INDENT.sub("", _STYLE_COMMENT.sub("", source("page.css"))))


def module_names(root: str = ROOT_MODULE) -> list[str]:
    """The modules in the order in which they are joined."""
    order: list[str] = []
    _visit(root, order, set())
    return order


def source(name: str) -> str:
    """A file of the page."""
    return (files("penstock.report.html") / "app" / name).read_text(encoding="utf-8")


def _visit(name: str, order: list[str], seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    for needed in _IMPORT.findall(source(f"{name}.mjs")):
        _visit(normpath(f"{dirname(name)}/{needed}"), order, seen)
    order.append(name)
