"""The same plan on every processor: numpy and BLAS choose instructions by the processor, and must not change a plan."""

import os
import platform
import subprocess
import sys

import pytest

PLAN = """
import penstock
from penstock.io import digest
from penstock.planners.bounds import lower_bound
for model, micro_batch_size, cluster in CASES:
    profile = penstock.load_profile(model, kinds=["T4"], micro_batch_size=micro_batch_size)
    cluster = penstock.load_cluster(cluster)
    plan = penstock.plan(profile, cluster, 8)
    print(digest(plan), lower_bound(profile, cluster, 8).seconds.hex())
"""
CASES = [
    ("gpt2-large", 4, "4 x T4 @ 10 GB/s"),
    ("resnet50", 16, "2 x 2 x T4 @ 10 GB/s / 1 GB/s"),
]
OLD_PROCESSOR = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}


def planned(environment: dict[str, str]) -> str:
    code = PLAN.replace("CASES", repr(CASES))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the settings are those of x86-64 processors")
def test_plans_do_not_depend_on_the_processor() -> None:
    assert planned({}) == planned(OLD_PROCESSOR)
