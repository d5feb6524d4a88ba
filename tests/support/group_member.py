r"""A librdkafka consumer in a group, as a process of its own, that tells what it reads.

    python tests/support/group_member.py '{"topic": TOPIC, "config": {…}}'

It prints lines of JSON: ``{"owned": [partition, …]}`` whenever that has changed, ``{"read":
[[partition, offset, value], …]}`` before it commits these, and ``{"closing": true}`` when it has
done its work and only the client's own close is left. It leaves when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

_PORTION: Final = 50
_POLL_S: Final = 0.2
_LEAVES_WITHIN_S: Final = 120.0


def consume(consumer: Consumer, leaving: threading.Event) -> None:
    owned: list[int] | None = None
    while not leaving.is_set():
        found = [one for one in consumer.consume(_PORTION, _POLL_S) if one.error() is None]
        now = sorted(one.partition for one in consumer.assignment())
        if now != owned:
            owned = now
            tell({"owned": owned})
        if found:
            tell({"read": [[m.partition(), m.offset(), text(m.value())] for m in found]})
            # It fails if a rebalance came between: whoever has the partition reads on from before.
            with suppress(KafkaException):
                consumer.commit(asynchronous=False)


def text(value: Any) -> str:
    assert isinstance(value, bytes)
    return value.decode("latin-1")


def tell(told: dict[str, object]) -> None:
    print(json.dumps(told), flush=True)


def main(argument: str) -> None:
    work = json.loads(argument)
    leaving = threading.Event()

    def await_end_of_input() -> None:
        sys.stdin.read()
        leaving.set()
        # The client may wait for ever for brokers that are gone, and whoever started this as well.
        last = threading.Timer(_LEAVES_WITHIN_S, os._exit, [1])
        last.daemon = True
        last.start()

    threading.Thread(target=await_end_of_input, daemon=True).start()
    consumer = Consumer(work["config"])
    consumer.subscribe([work["topic"]])
    consume(consumer, leaving)
    tell({"closing": True})
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1])
