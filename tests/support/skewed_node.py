"""A node whose clock is wrong; else as ``tidelog server`` is.

python skewed_node.py SECONDS --config FILE
"""

from __future__ import annotations

import sys
import time

SKEW_S = float(sys.argv[1]) if __name__ == "__main__" else 0.0


def set_clock_wrong() -> None:
    """Before anything is imported that takes the functions out of the module."""
    right_s, right_ns = time.time, time.time_ns
    time.time = lambda: right_s() + SKEW_S
    time.time_ns = lambda: right_ns() + int(SKEW_S * 1e9)


if __name__ == "__main__":
    set_clock_wrong()
    from tidelog.broker.process import main

    sys.exit(main(sys.argv[2:]))
