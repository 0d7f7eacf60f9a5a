"""Property tests look at new random cases in every local run, and at the same ones in every run of CI."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
