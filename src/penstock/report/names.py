"""Names from users' files, made fit for one line of a terminal."""


def shown_name(name: str) -> str:
    r"""The name with everything that does not print (control characters, line ends, invisible marks) escaped.

    >>> print(shown_name("gpu 0"), shown_name("a\nb"), shown_name("\x1b[31mred"))
    gpu 0 a\nb \x1b[31mred
    """
    if name.isprintable():
        return name
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in name
    )
