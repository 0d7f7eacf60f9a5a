"""XML without surprises: no document types, so no entities that unfold without end; not too deep, not too long."""

from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from penstock.errors import InputError

MAX_DEPTH = 64
MAX_ELEMENTS = 100_000


def parse_xml(text: str, *, where: str) -> Element:
    """The root element of an XML text."""
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise InputError("the XML declares a document type", where=where, hint="Remove it: NCCL writes none.")
    parser = XMLParser(target=_Bounded(where))
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ParseError as error:
        line, column = error.position
        what = str(error).partition(":")[0]
        raise InputError(f"broken XML: {what}", where=f"{where}:{line}:{column + 1}", hint="Dump it again.") from None
    except (ValueError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"broken XML: {error}", where=where, hint="Dump it again.") from None
    return root


class _Bounded(TreeBuilder):
    """Builds the tree, as long as it is neither too deep nor too large."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self._depth = self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH or self._count > MAX_ELEMENTS:
            hint = "Is it the right file?"
            raise InputError("the XML is nested too deeply, or too long", where=self._where, hint=hint)
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)
