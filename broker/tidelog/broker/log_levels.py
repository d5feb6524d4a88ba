"""Levels of this process's loggers, by Kafka's names for them, changed while it runs.

A logger that has no level of its own has that of the next one above it that has: setting
``tidelog.replication`` changes all below it. What is set lasts until the process ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
_TOP: Final = "tidelog"
_TRACE: Final = 5

LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": _TRACE,
}


def logger_names() -> list[str]:
    """The root, and every logger of the project with the folders above it."""
    names = {ROOT}
    for name in list(logging.root.manager.loggerDict):
        if name == _TOP or name.startswith(f"{_TOP}."):
            names.add(name)
    return sorted(names)


def level_of(name: str) -> str:
    """The level in effect."""
    number = _logger(name).getEffectiveLevel()
    for level, least in LEVELS.items():
        if number >= least:
            return level
    return "TRACE"


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def clear_level(name: str) -> None:
    """Back to the level of what is above it."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
