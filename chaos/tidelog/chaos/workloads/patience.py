"""Limits: for several steps together, and for calls of clients that know none."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

_AT_LEAST_S: Final = 10.0
"""What a client takes to close, at worst."""


class Patience:
    """For several steps together; what comes last gets a moment, too."""

    def __init__(self, for_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._until_s = clock_s() + for_s

    @property
    def left_s(self) -> float:
        return max(_AT_LEAST_S, self._until_s - self._clock_s())


class ClientHangs(KafkaException):
    """A call has not returned and never will; its client is of no use any more."""

    def __init__(self, patience_s: float) -> None:
        text = f"the client does not return within {patience_s:g} s"
        super().__init__(KafkaError(KafkaError._TIMED_OUT, text, fatal=True))


def within(patience_s: float, call: Callable[[], object]) -> None:
    """Do it, or raise ``ClientHangs``; the thread that hangs is left behind with the client.

    librdkafka's ``send_offsets_to_transaction`` never returns if the group's coordinator dies at
    the wrong moment, whatever time-out it was given (its issues 5456 and 5511).
    """
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
            done.put(None)
        except BaseException as error:  # raised again by whoever waits
            done.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        error = done.get(timeout=patience_s)
    except queue.Empty:
        raise ClientHangs(patience_s) from None
    if error is not None:
        raise error
