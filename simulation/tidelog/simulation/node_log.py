"""What nodes of a simulation log, with the virtual time and the process that said it."""

from __future__ import annotations

import asyncio
import logging
from typing import TextIO

from tidelog.simulation.processes import CURRENT_PROCESS


class NodeLog(logging.Handler):
    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT_PROCESS.get()
        try:
            now_s = asyncio.get_running_loop().time()
        except RuntimeError:
            now_s = 0.0
        who = "" if process is None else process.name
        where = record.name.removeprefix("tidelog.")
        text = f"{now_s:10.4f} {who:<12} {record.levelname[:4]} {where}: {record.getMessage()}"
        print(text, file=self._out)
