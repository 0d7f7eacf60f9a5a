"""The site builds with warnings as errors, and its pages load nothing from a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY


def test_the_site_builds_and_is_self_contained(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(https?:|//)|<link(?![^>]*canonical)[^>]*href=["']?(https?:|//)"""
    )
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    command_line = (tmp_path / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert "--global-batch-size" in command_line
