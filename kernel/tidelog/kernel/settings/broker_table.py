"""The settings of a broker or controller node, all rooms together, by name."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.settings.coordinator_rows import COORDINATOR_ROWS
from tidelog.kernel.settings.log_rows import LOG_ROWS
from tidelog.kernel.settings.node_rows import NODE_ROWS
from tidelog.kernel.settings.types import Table, table

BROKER_SETTINGS: Final[Table] = table(
    *sorted((*NODE_ROWS, *LOG_ROWS, *COORDINATOR_ROWS), key=lambda row: row.name)
)
