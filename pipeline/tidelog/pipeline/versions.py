"""Which PySpark is new enough: 4.2 brought read limits and AvailableNow to Python sources."""

from __future__ import annotations

import re
from typing import Final

NEEDED: Final = (4, 2)


class PySparkTooOld(RuntimeError):
    """The installed PySpark cannot run these sources."""


def check_pyspark(version: str) -> None:
    """Of ``pyspark.__version__``; development builds of a version count as that version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < NEEDED:
        raise PySparkTooOld(
            f"tidelog needs PySpark {NEEDED[0]}.{NEEDED[1]} or newer, and this is PySpark {version}"
        )


def require_pyspark() -> None:
    import pyspark

    check_pyspark(pyspark.__version__)
