"""``make chaos-campaign``: which pieces it does, with a command that only writes down its call."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidelog.chaos.run_summary import RunSummary, encode_summary

ROOT: Final = Path(__file__).parents[3]
WHOLE: Final = RunSummary("a run", 60.0, 100, 0, 0, 100, 0, {"lost write": 0}, (), ())
_TIDELOG: Final = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
"""


def campaign(home: Path, seeds: str) -> list[str]:
    """What it asks ``tidelog`` to do."""
    program = home / "tidelog"
    program.write_text(_TIDELOG)
    program.chmod(0o755)
    (home / "calls").unlink(missing_ok=True)
    arguments = [f"V={home}", f"CAMPAIGN={home}/campaign", f"CAMPAIGN_SEEDS={seeds}"]
    command = ["make", "-s", "-o", ".venv/.dev", "chaos-campaign", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    return (home / "calls").read_text().splitlines()


def leave(home: Path, seed: str, is_whole: bool) -> None:
    directory = home / "campaign" / seed
    directory.mkdir(parents=True)
    run = replace(WHOLE, is_whole=is_whole)
    (directory / "summary.json").write_text(encode_summary(run), encoding="utf-8")


def test_pieces_that_were_cut_short_are_done_again(tmp_path: Path) -> None:
    leave(tmp_path, "1", is_whole=True)
    leave(tmp_path, "2", is_whole=False)
    (tmp_path / "campaign" / "3").mkdir()  # stopped at once: there is no summary
    *runs, last = campaign(tmp_path, "1 2 3 4")
    assert [run.partition(" --seed ")[2].split()[0] for run in runs] == ["2", "3", "4"]
    assert last.startswith("chaos summary")
