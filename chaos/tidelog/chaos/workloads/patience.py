"""A limit for calls of clients that know none."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException


def within(patience_s: float, call: Callable[[], object]) -> None:
    """Do it, or raise an error that only a new client survives; the old one is left behind.

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
        text = f"the client does not return within {patience_s:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, fatal=True)) from None
    if error is not None:
        raise error
