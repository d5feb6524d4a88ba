"""``python -m tidelog.broker``: the node without the command line's libraries."""

from __future__ import annotations

import sys

from tidelog.broker.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
