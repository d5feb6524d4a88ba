"""Transactions of a producer: which call may follow which, and what to do when one fails.

librdkafka sorts its errors: some calls may simply be repeated, some transactions must be aborted,
and after a fatal error the producer is of no more use (Fenced is the usual one: another producer
has the same ``transactional.id``). Repeating is done here, until the transaction's own time-out.

States: NEW --begin--> OPEN --commit or abort--> IDLE --begin--> OPEN; a fatal error leads to OVER.

Owner: one producer; its calls block, one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from tidelog.client.errors import MustAbort, WrongState, from_exception
from tidelog.client.outbox import Outbox
from tidelog.client.records import GivenOffsets, OffsetAndMetadata, TopicPartition

_RETRY_S: Final = 0.05


class GroupMetadata:
    """A consumer's standing in its group, for ``send_offsets``: it fences zombies (KIP-447)."""

    __slots__ = ("group_id", "opaque")

    def __init__(self, group_id: str, opaque: Any) -> None:
        self.group_id = group_id
        self.opaque = opaque


class ReadsFromGroup(Protocol):
    """What ``send_offsets`` wants of a consumer, asynchronous or not."""

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def group_metadata(self) -> GroupMetadata: ...


class State(Enum):
    NEW = "not begun"
    IDLE = "no transaction"
    OPEN = "a transaction is open"
    OVER = "over"


class Transactions:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._name = outbox.config.text("transactional.id")
        self._timeout_s = outbox.config.seconds("transaction.timeout.ms")
        self.state = State.NEW

    def require_open(self) -> None:
        if self.state is not State.OPEN:
            raise WrongState(
                f"{self._name}: a TransactionalProducer sends only inside of a transaction "
                f"(with producer.transaction(): …); {self.state.value}"
            )

    def begin(self) -> None:
        if self.state is State.OPEN:
            raise WrongState(f"{self._name}: a transaction is open already; they do not nest")
        rd = self._outbox.rd
        if self.state is State.NEW:
            self._do("to register the transactional id", rd.init_transactions)
            self.state = State.IDLE
        self._do("to begin a transaction", lambda _: rd.begin_transaction())
        self.state = State.OPEN

    def commit(self) -> None:
        """All or nothing; a transaction that can only be aborted is, and then this raises."""
        self.require_open()
        try:
            self._do("to commit a transaction", self._outbox.rd.commit_transaction)
        except MustAbort:
            self.abort()
            raise
        self.state = State.IDLE

    def abort(self) -> None:
        if self.state is State.OPEN:
            self._do("to abort a transaction", self._outbox.rd.abort_transaction)
            self.state = State.IDLE

    def send_offsets(self, consumer: ReadsFromGroup, offsets: GivenOffsets | None) -> None:
        """The group's offsets become part of the transaction (exactly once, KIP-98)."""
        self.require_open()
        wanted = consumer.positions() if offsets is None else offsets
        if not wanted:
            return
        group = consumer.group_metadata()
        given = rd_offsets(wanted)
        rd = self._outbox.rd
        self._do(
            f"to add offsets of group {group.group_id!r} to a transaction",
            lambda timeout_s: rd.send_offsets_to_transaction(given, group.opaque, timeout_s),
        )

    def _do(self, what: str, call: Callable[[float], object]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                call(max(_RETRY_S, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if error.args[0].fatal():
                    self.state = State.OVER
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    text = f"{self._name} failed {what}"
                    raise from_exception(error, text, self._outbox.troubles.tried()) from None
            time.sleep(_RETRY_S)


def rd_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> list[RdTopicPartition]:
    """Offsets as librdkafka takes them."""
    found = []
    for (topic, partition), given in offsets.items():
        one = OffsetAndMetadata(given) if isinstance(given, int) else given
        optional: dict[str, Any] = {}
        if one.metadata:
            optional["metadata"] = one.metadata
        if one.leader_epoch is not None:
            optional["leader_epoch"] = one.leader_epoch
        found.append(RdTopicPartition(topic, partition, one.offset, **optional))
    return found
