"""Switches that make a node lie or be lied to. For tests that break clusters, and nothing else.

They stand in one environment variable, which no configuration file can set, and a node that finds
any says so in its log as a warning. Without the variable nothing of this is even imported.

``rigged``
    Disk and calendar take orders: a directory beside the node's first log directory holds the
    orders (``orders.json``), which may change while the node runs, and the disk's own notes of
    what was synced, from which power loss can be played (``rigged_disk``).
``ack-before-replication``
    Produce with acks=all is answered like acks=1, so that checkers of histories can be checked:
    they must find what this loses.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.real.clock import SystemClock

SWITCHES: Final = "TIDELOG_UNSAFE_TESTING"
RIGGED: Final = "rigged"
ACK_BEFORE_REPLICATION: Final = "ack-before-replication"
_KNOWN: Final = (RIGGED, ACK_BEFORE_REPLICATION)
_ORDERS: Final = "orders.json"
_LOOK_EVERY_S: Final = 0.02


class UnknownSwitch(ValueError):
    """A word in the variable that stands for nothing."""


def switches(environment: Mapping[str, str]) -> frozenset[str]:
    """Those that are on."""
    words = [word.strip() for word in environment.get(SWITCHES, "").split(",")]
    on = frozenset(filter(None, words))
    if unknown := sorted(on - set(_KNOWN)):
        raise UnknownSwitch(
            f"{SWITCHES} has {', '.join(unknown)}; there are {', '.join(_KNOWN)} (tests only)"
        )
    return on


@dataclass(frozen=True, slots=True)
class Rigging:
    """How a node's disk and calendar lie to it; the default is that they do not."""

    is_disk_full: bool = False
    is_read_only: bool = False
    sync_ms: float = 0.0
    """How much longer every sync takes."""
    skew_s: float = 0.0
    """How far ahead the calendar is; negative: behind."""


SOUND: Final = Rigging()


def rigging_dir(log_dir: str) -> str:
    """Where orders and notes for the node with this first log directory are."""
    return f"{log_dir.rstrip('/')}.rigged"


def give_orders(log_dir: str, rigging: Rigging) -> None:
    """Taken up by a running node within moments, and by one that starts later."""
    directory = rigging_dir(log_dir)
    os.makedirs(directory, exist_ok=True)
    new = f"{directory}/{_ORDERS}.new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(asdict(rigging), file)
    os.replace(new, f"{directory}/{_ORDERS}")


class Orders:
    """The orders in force; looks at the file now and then."""

    __slots__ = ("_looked_at_s", "_path", "_seen_ns", "_standing")

    def __init__(self, log_dir: str) -> None:
        self._path = f"{rigging_dir(log_dir)}/{_ORDERS}"
        self._standing = SOUND
        self._seen_ns = 0
        self._looked_at_s = float("-inf")

    @property
    def standing(self) -> Rigging:
        now_s = time.monotonic()
        if now_s - self._looked_at_s > _LOOK_EVERY_S:
            self._looked_at_s = now_s
            with suppress(FileNotFoundError):  # none were given yet
                self._look()
        return self._standing

    def _look(self) -> None:
        changed_ns = os.stat(self._path).st_mtime_ns
        if changed_ns != self._seen_ns:
            with open(self._path, encoding="utf-8") as file:
                self._standing = Rigging(**json.load(file))
            self._seen_ns = changed_ns


class RiggedClock(SystemClock):
    """A calendar that is as wrong as ordered; the stop watch is right."""

    __slots__ = ("_orders",)

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(super().wall_ms() + int(self._orders.standing.skew_s * 1000))
