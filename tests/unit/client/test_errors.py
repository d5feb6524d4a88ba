"""What an exception says: code, name, and whether trying again may help."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tidelog.client import ClientError, Fenced, MustAbort, RequestFailed, TimedOut
from tidelog.client import errors as client_errors
from tidelog.client.errors import is_retriable, request_failed


@pytest.mark.parametrize(
    ("error", "kind", "name", "retriable"),
    [
        (KafkaError(6), RequestFailed, "NOT_LEADER_OR_FOLLOWER", True),
        (KafkaError(36), RequestFailed, "TOPIC_ALREADY_EXISTS", False),
        (KafkaError(3), RequestFailed, "UNKNOWN_TOPIC_OR_PARTITION", True),
        (KafkaError(10), RequestFailed, "MESSAGE_TOO_LARGE", False),
        (KafkaError(7), TimedOut, "REQUEST_TIMED_OUT", True),
        (KafkaError(KafkaError._MSG_TIMED_OUT), TimedOut, "_MSG_TIMED_OUT", True),
        (KafkaError(KafkaError._TRANSPORT), RequestFailed, "_TRANSPORT", True),
        (KafkaError(KafkaError._UNKNOWN_PARTITION), RequestFailed, "_UNKNOWN_PARTITION", False),
        (KafkaError(90), Fenced, "PRODUCER_FENCED", False),
        (KafkaError(KafkaError._FENCED, fatal=True), Fenced, "_FENCED", False),
        (KafkaError(59, txn_requires_abort=True), MustAbort, "UNKNOWN_PRODUCER_ID", False),
        (KafkaError(KafkaError._TRANSPORT, fatal=True), RequestFailed, "_TRANSPORT", False),
        (KafkaError(31000), RequestFailed, KafkaError(31000).name(), False),
    ],
)
def test_an_error_of_librdkafka(
    error: KafkaError, kind: type[RequestFailed], name: str, retriable: bool
) -> None:
    found = request_failed(error, "it failed", lambda: "tried nobody")
    assert type(found) is kind
    assert (found.code, found.name, found.retriable) == (error.code(), name, retriable)
    assert found.fatal == error.fatal()
    assert str(found).startswith("it failed: ") and name in str(found)


def test_a_timeout_is_one_for_python_too_and_says_who_was_tried() -> None:
    found = request_failed(KafkaError(KafkaError._TIMED_OUT), "nothing came", lambda: "tried a:1")
    assert isinstance(found, TimeoutError) and str(found).endswith("; tried a:1")
    assert found.outcome_unknown


def test_local_codes_are_librdkafkas() -> None:
    for ours, theirs in [
        ("INVALID_ARGUMENT", "_INVALID_ARG"),
        ("WRONG_STATE", "_STATE"),
        ("TIMED_OUT", "_TIMED_OUT"),
        ("MESSAGE_TIMED_OUT", "_MSG_TIMED_OUT"),
        ("QUEUE_FULL", "_QUEUE_FULL"),
        ("FENCED", "_FENCED"),
        ("KEY_SERIALIZATION", "_KEY_SERIALIZATION"),
        ("VALUE_SERIALIZATION", "_VALUE_SERIALIZATION"),
        ("KEY_DESERIALIZATION", "_KEY_DESERIALIZATION"),
        ("VALUE_DESERIALIZATION", "_VALUE_DESERIALIZATION"),
    ]:
        assert getattr(client_errors, ours) == getattr(KafkaError, theirs)
    retriable = {
        "_TRANSPORT", "_RESOLVE", "_MSG_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TIMED_OUT",
        "_QUEUE_FULL", "_NODE_UPDATE", "_WAIT_COORD", "_IN_PROGRESS", "_PREV_IN_PROGRESS",
        "_TIMED_OUT_QUEUE", "_WAIT_CACHE", "_RETRY",
    }  # fmt: skip
    local = {name for name in vars(KafkaError) if name.startswith("_") and name[1].isupper()}
    assert {name for name in local if is_retriable(getattr(KafkaError, name))} == retriable


def test_every_exception_of_the_client_carries_the_three() -> None:
    kinds = [
        kind
        for kind in vars(client_errors).values()
        if isinstance(kind, type) and issubclass(kind, ClientError)
    ]
    assert len(kinds) > 8
    for kind in kinds:
        assert isinstance(kind.code, int) and kind.name and kind.retriable is False
