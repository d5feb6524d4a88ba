"""What a client's error says about whether the thing happened. Pure but for the names of errors.

Never guess: an error is FAILED only if the request cannot have had an effect. All others, above
all those of time, leave it open.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from tidelog.chaos.history import Outcome

_NEVER_WRITTEN: Final = frozenset({
    KafkaError._QUEUE_FULL, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.RECORD_LIST_TOO_LARGE,
})  # fmt: skip
"""Refused for what it is, so that an earlier try cannot have been taken. A record that is purged
from the queue is not among them: it may have been there for its second try."""

_NEVER_COMMITTED: Final = frozenset({KafkaError._NO_OFFSET, KafkaError._ASSIGNMENT_LOST})
"""Refused by the client. A coordinator's refusal says nothing of an earlier try of the same
commit, whose answer was lost."""


def outcome_of_append(error: KafkaError | None) -> Outcome:
    if error is None:
        return Outcome.OK
    return Outcome.FAILED if error.code() in _NEVER_WRITTEN else Outcome.UNKNOWN


def outcome_of_commit(error: KafkaError | None) -> Outcome:
    """Of offsets, by a member of a group."""
    if error is None:
        return Outcome.OK
    return Outcome.FAILED if error.code() in _NEVER_COMMITTED else Outcome.UNKNOWN
