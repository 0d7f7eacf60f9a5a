"""A griffe extension for the API reference: doctests become the section "Examples", which is rendered as code."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
HEADING = re.compile(r"^Example:$", re.MULTILINE)


class Doctests(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Name the section as griffe's parser expects it, and put doctests without a section into one."""
        if obj.docstring is None:
            return
        text = HEADING.sub("Examples:", obj.docstring.value)
        obj.docstring.value = DOCTEST.sub(lambda match: _section(match[0]), text)


def _section(doctest: str) -> str:
    return "Examples:\n" + "\n".join(f"    {line}" for line in doctest.splitlines())
