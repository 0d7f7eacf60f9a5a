"""The page's ES modules, bundled into one script in the order of their imports.

The sources are plain ES modules, so that tests and editors read them as they are. A single HTML file cannot import
modules, so the bundle drops all imports and exports, and the modules share one scope.
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


def bundle_script(root: str = ROOT_MODULE) -> str:
    """All modules that the root imports, the root last, without comments and indentation."""
    text = "".join(_EXPORT.sub("", _IMPORT.sub("", source(f"{name}.mjs"))) for name in module_names(root))
    return _INDENT.sub("", _COMMENT.sub("", text))


def minify_style() -> str:
    """The page's style sheet without comments, indentation and needless line ends."""
    return _LINE_END.sub(r"\1", _INDENT.sub("", _STYLE_COMMENT.sub("", source("page.css"))))


def module_names(root: str = ROOT_MODULE) -> list[str]:
    """The modules in the order of the bundle."""
    order: list[str] = []
    _visit(root, order, set())
    return order


def source(name: str) -> str:
    """Read a source file of the page."""
    return (files("penstock.report.html") / "app" / name).read_text(encoding="utf-8")


def _visit(name: str, order: list[str], seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    for imported in _IMPORT.findall(source(f"{name}.mjs")):
        _visit(normpath(f"{dirname(name)}/{imported}"), order, seen)
    order.append(name)
