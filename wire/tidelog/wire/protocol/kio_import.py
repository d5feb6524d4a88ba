"""kio without what it drags in.

Where Hypothesis is installed kio imports it, to register strategies for its types. That is of use
to tests only, and costs a fifth of a second and 15 MB in every process.
"""

from __future__ import annotations

import sys


def keep_hypothesis_out() -> None:
    """For programs, before anything imports kio; without effect where Hypothesis is loaded."""
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
