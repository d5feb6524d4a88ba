"""How a node writes its log: for people, or one JSON object a line for machines.

In JSON whatever a line was logged with (``extra``) becomes fields of their own next to ``time``,
``level``, ``logger`` and ``message``; what people read says the same in words.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final

HUMAN: Final = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s  %(message)s"
_PLAIN: Final = logging.LogRecord("", 0, "", 0, "", (), None)
_OF_EVERY_RECORD: Final = frozenset({*vars(_PLAIN), "message", "asctime", "taskName"})
_OWN: Final = frozenset({"time", "level", "logger", "message", "exception"})


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time_text(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _OF_EVERY_RECORD:
                fields[f"{name}_" if name in _OWN else name] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def _time_text(created_s: float) -> str:
    """UTC, to the millisecond, as RFC 3339 has it."""
    whole_s, millis = divmod(round(created_s * 1000), 1000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{millis:03d}Z", time.gmtime(whole_s))


def formatter(name: str) -> logging.Formatter:
    return JsonFormatter() if name == "json" else logging.Formatter(HUMAN, datefmt="%H:%M:%S")


def configure(level: str, format_name: str) -> None:
    """The root logger, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(format_name))
    logging.basicConfig(level=level, handlers=[handler])
