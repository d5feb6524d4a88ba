"""What went wrong on the way to the brokers lately, to be told when something times out.

librdkafka retries by itself and reports each failed connection on the side. A time-out alone would
say nothing of that; with these words it names who was tried and how that failed.

Owner: any thread of librdkafka's callbacks writes, whoever raises reads; a bounded deque suffices.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from tidelog.client.config import ClientConfig

LOGGER: Final = logging.getLogger("tidelog.client")
LOGGER.addHandler(logging.NullHandler())  # nothing is printed unless the program logs
_REMEMBERED: Final = 16
_TOLD: Final = 3
_ALL_BROKERS_DOWN: Final = -187


class Troubles:
    def __init__(self, config: ClientConfig) -> None:
        self._servers = config.servers
        self._heard: deque[str] = deque(maxlen=_REMEMBERED)

    def options(self) -> dict[str, Any]:
        """What to add to librdkafka's settings."""
        return {"error_cb": self.note, "logger": LOGGER}

    def note(self, error: KafkaError) -> None:
        if error.code() != _ALL_BROKERS_DOWN:  # says nothing that the others do not
            self._heard.append(error.str())

    def tried(self) -> str:
        """Who was asked, and the last different things that went wrong with that."""
        told = list(dict.fromkeys(reversed(self._heard)))[:_TOLD]
        text = f"tried {self._servers}"
        return f"{text}: {' | '.join(told)}" if told else f"{text}, which reported no error"
