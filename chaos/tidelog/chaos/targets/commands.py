"""Running the system's tools, with failures that say what was run and what it said."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.chaos.targets.base import TargetError

_TIMEOUT_S: Final = 60.0


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """What the command printed; ``TargetError`` if it could not be run or failed."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise TargetError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def succeeds(*command: str) -> bool:
    try:
        run(*command)
    except TargetError:
        return False
    return True


def missing(tools: Sequence[str]) -> list[str]:
    """Those that are not on the path."""
    return [tool for tool in tools if shutil.which(tool) is None]
