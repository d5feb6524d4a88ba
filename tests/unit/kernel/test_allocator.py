"""Blocks of some megabytes are used again instead of being given back and cleared each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from tidelog.kernel.real.allocator import keep_large_blocks
if sys.argv[1] == "kept":
    keep_large_blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    answers = [bytearray(4 << 20) for _ in range(8)]
    del answers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    program = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_large_blocks_are_kept() -> None:
    assert page_faults("kept") < page_faults("as it is") / 10
