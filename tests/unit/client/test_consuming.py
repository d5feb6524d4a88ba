"""What a consumer does with what librdkafka hands it, record or error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tidelog.client import DeserializationFailed, RequestFailed
from tidelog.client.consuming import ConsumerCore
from tidelog.client.serializers import bytes_deserializer


class Message:
    """A record at an offset, or an error in its place."""

    def __init__(self, offset: int, error: KafkaError | None = None, headers: Any = None) -> None:
        self._offset = offset
        self._error = error
        self._headers = headers

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def leader_epoch(self) -> int:
        return 3

    def headers(self) -> Any:
        if isinstance(self._headers, BaseException):
            raise self._headers
        return self._headers


@pytest.fixture
def core() -> Iterator[ConsumerCore[bytes, bytes]]:
    found = ConsumerCore(
        {"bootstrap.servers": "127.0.0.1:1"}, bytes_deserializer, bytes_deserializer
    )
    yield found
    found.close()


def hand_over(core: ConsumerCore[bytes, bytes], *messages: Message) -> None:
    given: list[Any] = list(messages)
    core._admit(given)


@pytest.mark.parametrize(
    "problem", [SystemError("set"), UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_headers_that_cannot_be_read_do_not_hide_where_they_are(
    core: ConsumerCore[bytes, bytes], problem: Exception
) -> None:
    hand_over(core, Message(4, headers=[("a", b"1")]), Message(5, headers=problem))
    assert [record.headers for record in core.take(10)] == [(("a", b"1"),)]
    with pytest.raises(DeserializationFailed, match="the headers of the record at offset 5") as no:
        core.take(10)
    assert (no.value.topic, no.value.partition, no.value.offset) == ("t", 0, 5)


@pytest.mark.parametrize("code", [29, 30, KafkaError._AUTO_OFFSET_RESET])
def test_what_does_not_pass_is_raised_after_the_records_before_it(
    core: ConsumerCore[bytes, bytes], code: int
) -> None:
    hand_over(core, Message(0), Message(1, KafkaError(code)))
    assert [record.offset for record in core.take(10)] == [0]
    with pytest.raises(RequestFailed) as caught:
        core.take(10)
    assert caught.value.code == code
    assert core.take(10) == []  # once


@pytest.mark.parametrize("code", [3, 6, 16, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
def test_what_passes_is_logged(
    core: ConsumerCore[bytes, bytes], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    hand_over(core, Message(0, KafkaError(code, "for a while")), Message(1))
    assert [record.offset for record in core.take(10)] == [1]
    assert "for a while" in caplog.text
