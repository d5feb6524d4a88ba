"""What went wrong on the way to the brokers lately, to be told when something times out.

librdkafka retries by itself and reports each failed connection on the side. A time-out alone would
say nothing of that; with these words it names who was tried and how that failed.

Owner: any thread of librdkafka's callbacks writes, whoever raises reads; a bounded deque suffices.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from tidelog.client.errors import from_exception, timed_out

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from tidelog.client.config import ClientConfig

LOGGER: Final = logging.getLogger("tidelog.client")
LOGGER.addHandler(logging.NullHandler())  # nothing is printed unless the program logs
_REMEMBERED: Final = 16
_TOLD: Final = 3
_LOOK_S: Final = 0.5
_LATELY_S: Final = 5.0
_ALL_BROKERS_DOWN: Final = -187
_NOBODY: Final = frozenset({_ALL_BROKERS_DOWN, -195})  # the other one is _TRANSPORT
_MOST_OF_IT: Final = 0.9
_MOMENT: Final = re.compile(r" \(after \d+ms in state \w+[^)]*\)$")
"""Differs each time, so that the same trouble would be told twice."""


class Troubles:
    def __init__(self, config: ClientConfig) -> None:
        self._servers = config.servers
        self._heard: deque[tuple[float, str]] = deque(maxlen=_REMEMBERED)

    def options(self) -> dict[str, Any]:
        """What to add to librdkafka's settings."""
        return {"error_cb": self.note, "logger": LOGGER}

    def note(self, error: KafkaError) -> None:
        if error.code() != _ALL_BROKERS_DOWN:  # says nothing that the others do not
            words = _MOMENT.sub("", error.str())
            self._heard.append((time.monotonic(), words))

    def tried(self) -> str:
        """Who was asked, and the last different things that went wrong with that."""
        newest: dict[str, float] = {}
        for heard_s, words in reversed(list(self._heard)):
            newest.setdefault(words, heard_s)
        return self._in_words([_aged(*one) for one in newest.items()][:_TOLD])

    def look(self) -> str:
        """The same, for whoever heard nothing because it did not poll; may block for a while."""
        if self._heard:
            return self.tried()
        return self._in_words([_state_of(one) for one in self._servers.split(",")[:_TOLD]])

    @contextmanager
    def answered(
        self, what: str, timeout_s: float, tried: Callable[[], str] | None = None
    ) -> Iterator[None]:
        """Around a call that waits for so long: then nobody was there, however it is put."""
        begun_s = time.monotonic()
        try:
            yield
        except KafkaException as error:
            waited_s = time.monotonic() - begun_s
            if error.args[0].code() in _NOBODY and waited_s >= timeout_s * _MOST_OF_IT:
                raise timed_out(what, timeout_s, (tried or self.look)()) from None
            raise from_exception(error, what, tried or self.look) from None

    def _in_words(self, told: list[str]) -> str:
        text = f"tried {self._servers}"
        return f"{text}: {' | '.join(told)}" if told else f"{text}, which reported no error"


def _aged(words: str, heard_s: float) -> str:
    age_s = time.monotonic() - heard_s
    return words if age_s < _LATELY_S else f"{words} ({age_s:.0f} s ago)"


def _state_of(server: str) -> str:
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _LOOK_S).close()
    except OSError as error:
        return f"{server}: {error.strerror or error}"
    return f"{server} accepts connections"
