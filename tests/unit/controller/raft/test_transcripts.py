"""Each rule of the Raft paper's figure 2 and each extension, as a script and its printed effects.

The scripts are in tests/transcripts/raft. After a change that is meant, run this file with
TIDELOG_UPDATE_TRANSCRIPTS=1 and review the difference as text.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from raft_transcript import replay

FOLDER = Path(__file__).parents[3] / "transcripts" / "raft"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_effects_are_as_written(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    now = replay(written)
    if os.environ.get("TIDELOG_UPDATE_TRANSCRIPTS") == "1":
        path.write_text(now, encoding="utf-8")
    else:
        assert now == written


def test_no_script_is_forgotten() -> None:
    assert len(SCRIPTS) >= 15
    assert all(">" in path.read_text(encoding="utf-8") for path in SCRIPTS)


def test_another_effect_is_noticed() -> None:
    written = (FOLDER / "founding.txt").read_text(encoding="utf-8")
    assert replay(written.replace("voters=1,2,3", "voters=1,2")) != written
