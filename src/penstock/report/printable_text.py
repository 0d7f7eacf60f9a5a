"""Escaping of names and messages from users' files, so that they print on one line of a terminal."""


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
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
