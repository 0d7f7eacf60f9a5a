"""Safe XML parsing: no document types, hence no entity expansion; limited depth and size."""

from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from penstock.errors import InputError

MAX_DEPTH = 64
MAX_ELEMENTS = 100_000


def parse_xml(text: str, *, where: str) -> Element:
    """Parse an XML text and return its root element."""
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        hint = "Remove it: NCCL does not write one."
        raise InputError("the XML declares a document type", where=where, hint=hint)
    parser = XMLParser(target=_Bounded(where))
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ParseError as error:
        line, column = error.position
        what = str(error).partition(":")[0]
        at, hint = f"{where}:{line}:{column + 1}", "Dump the topology again."
        raise InputError(f"broken XML: {what}", where=at, hint=hint) from None
    except (ValueError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"broken XML: {error}", where=where, hint="Dump the topology again.") from None
    return root


class _Bounded(TreeBuilder):
    """Builds the tree within limits of depth and size."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self._depth = self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH or self._count > MAX_ELEMENTS:
            hint = "Check that this is the right file."
            raise InputError("the XML is nested too deeply or has too many elements", where=self._where, hint=hint)
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)
