"""`make bench-report`: print what every benchmark measured when it last ran."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.table import RESULTS, print_rows


def main(results: Path = RESULTS) -> int:
    files = sorted(results.glob("*.json"))
    if not files:
        print(f"no results in {results}; run a benchmark first: make help", file=sys.stderr)
        return 1
    for file in files:
        stored = json.loads(file.read_text(encoding="utf-8"))
        print_rows(stored["benchmark"], stored["rows"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
