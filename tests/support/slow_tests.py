"""Which of a test's cases run each time, and which only where there is time for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def slow_after(often: int, cases: Sequence[Any]) -> list[Any]:
    """The first ``often`` run with ``make test``, the others with ``make test-slow``."""
    rest = [pytest.param(case, marks=pytest.mark.slow) for case in cases[often:]]
    return [*cases[:often], *rest]
