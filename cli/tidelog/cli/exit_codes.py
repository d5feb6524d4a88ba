"""How a command ends; 2 is also what typer uses for arguments it cannot read."""

from __future__ import annotations

from typing import Final

OK: Final = 0
PROBLEM: Final = 1
USAGE: Final = 2
