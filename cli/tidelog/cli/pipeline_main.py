"""What ``spark-submit`` runs: ``spark-submit $(tidelog pipeline script) archive orders …``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from tidelog.cli.main import main

    sys.argv.insert(1, "pipeline")
    main()
