"""Each rule of leading and following a partition, as a script and what the machine decides.

The scripts are in tests/transcripts/replication. After a change that is meant, run this file with
TIDELOG_UPDATE_TRANSCRIPTS=1 and review the difference as text.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from replication_transcript import replay

FOLDER = Path(__file__).parents[2] / "transcripts" / "replication"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_decisions_are_as_written(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    now = replay(written)
    if os.environ.get("TIDELOG_UPDATE_TRANSCRIPTS") == "1":
        path.write_text(now, encoding="utf-8")
    else:
        assert now == written


def test_no_script_is_forgotten() -> None:
    assert len(SCRIPTS) >= 12
    assert all(">" in path.read_text(encoding="utf-8") for path in SCRIPTS)


def test_another_decision_is_noticed() -> None:
    written = (FOLDER / "high_watermark.txt").read_text(encoding="utf-8")
    assert replay(written.replace("flushed=8", "flushed=7")) != written
