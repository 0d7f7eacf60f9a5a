"""Escaping of names and messages from users' files: the only place that decides what reaches a terminal or a page."""


def escape_text(text: str) -> str:
    r"""Escape every character that does not print: control characters, line ends, invisible marks.

    Args:
        text: A name, a path or a message that may come from a user's file.

    Returns:
        The text itself if all of it prints, otherwise a copy with Python escapes.

    >>> print(escape_text("gpu 0"), escape_text("a\nb"), escape_text("\x1b[31mred"))
    gpu 0 a\nb \x1b[31mred
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def escape_lines(text: str) -> str:
    r"""Escape as `escape_text` does, but keep line feeds.

    >>> print(escape_lines("first\nsecond\x1b[2J"))
    first
    second\x1b[2J
    """
    return "\n".join(map(escape_text, text.split("\n")))


def escape_json(text: str) -> str:
    r"""Write every character of a JSON document that does not print as a JSON escape; the value stays the same.

    Args:
        text: A JSON document. Line feeds and spaces between values stay.

    >>> print(escape_json('["\u202e"]'))
    ["\u202e"]
    """
    return "\n".join(line if line.isprintable() else "".join(map(_json_escape, line)) for line in text.split("\n"))


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _json_escape(letter: str) -> str:
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
