"""Files that exports contain unchanged. They belong to the engine: Penstock never imports them."""

from importlib import resources


def read_template(name: str) -> str:
    """The text of a file of `templates/`."""
    return resources.files("penstock.export").joinpath("templates", name).read_text(encoding="utf-8")
