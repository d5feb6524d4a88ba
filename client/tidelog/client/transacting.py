"""Transactions of a producer: which call may follow which, and what to do when one fails.

librdkafka sorts its errors: some calls may simply be repeated, some transactions must be aborted,
and after a fatal error the producer is of no more use (Fenced is the usual one: another producer
has the same ``transactional.id``). Repeating is done here, until the transaction's own time-out.

A commit or an abort that found no end in that time is fatal, too: the cluster is about to give the
transaction up by itself, and whether it was committed is known only to whoever registers the
transactional id anew. So says the exception, and the next producer of that name begins cleanly.

States: NEW --begin--> OPEN --commit or abort--> IDLE --begin--> OPEN; a fatal error leads to OVER,
and whoever goes on is told that error again.

Owner: one producer; its calls block, one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from tidelog.client.checks import checked_offsets
from tidelog.client.errors import MustAbort, RequestFailed, WrongState, WrongType, from_exception
from tidelog.client.outbox import Outbox
from tidelog.client.records import GivenOffsets, OffsetAndMetadata, TopicPartition

_RETRY_S: Final = 0.05
_UNKNOWN_END: Final = (
    "whether it was committed is not known; close this producer, make another of the same "
    "transactional.id, which settles it with its first transaction, and look"
)
_NO_END: Final = "the cluster aborts it by itself; close this producer and make another"


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
    NEW = "none was begun"
    IDLE = "none is open"
    OPEN = "one is open"
    OVER = "this producer is of no more use"


class Transactions:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._name = outbox.config.text("transactional.id")
        self._timeout_s = outbox.config.seconds("transaction.timeout.ms")
        self._end: RequestFailed | None = None
        """What made this producer useless."""
        self.state = State.NEW

    def require_open(self) -> None:
        self._require_use()
        if self.state is not State.OPEN:
            raise WrongState(
                f"{self._name}: a TransactionalProducer sends only inside of a transaction "
                f"(with producer.transaction(): …), and {self.state.value}"
            )

    def begin(self) -> None:
        self._require_use()
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
        except RequestFailed as failure:
            raise self._over(failure, _UNKNOWN_END) from None
        self.state = State.IDLE

    def abort(self, timeout_s: float | None = None) -> None:
        """Nothing of it; does nothing if no transaction is open."""
        if self.state is not State.OPEN:
            return
        try:
            self._do("to abort a transaction", self._outbox.rd.abort_transaction, timeout_s)
        except RequestFailed as failure:
            raise self._over(failure, _NO_END) from None
        self.state = State.IDLE

    def send_offsets(self, consumer: ReadsFromGroup, offsets: GivenOffsets | None) -> None:
        """The group's offsets become part of the transaction (exactly once, KIP-98)."""
        self.require_open()
        if not hasattr(consumer, "positions") or not hasattr(consumer, "group_metadata"):
            raise WrongType(f"send_offsets: a Consumer is wanted, not {consumer!r}")
        wanted = consumer.positions() if offsets is None else checked_offsets(offsets)
        if not wanted:
            return
        group = consumer.group_metadata()
        given = rd_offsets(wanted)
        rd = self._outbox.rd
        self._do(
            f"to add offsets of group {group.group_id!r} to a transaction",
            lambda timeout_s: rd.send_offsets_to_transaction(given, group.opaque, timeout_s),
        )

    def _do(
        self, what: str, call: Callable[[float], object], timeout_s: float | None = None
    ) -> None:
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                call(max(_RETRY_S, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    text = f"{self._name} failed {what}"
                    failure = from_exception(error, text, self._outbox.troubles.tried)
                    raise self._over(failure) if failure.fatal else failure from None
            time.sleep(_RETRY_S)

    def _over(self, failure: RequestFailed, advice: str = "") -> RequestFailed:
        """There is no way on from here. A failure that is fatal as it is needs no advice."""
        if not failure.fatal:
            failure = _again(failure, f"{failure}; {advice}")
        self.state, self._end = State.OVER, failure
        return failure

    def _require_use(self) -> None:
        if self._end is not None:
            raise _again(self._end, str(self._end))


def _again(failure: RequestFailed, text: str) -> RequestFailed:
    return type(failure)(text, failure.code, failure.name, retriable=False, fatal=True)


def rd_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[RdTopicPartition]:
    """Offsets as librdkafka takes them."""
    found = []
    for (topic, partition), one in offsets.items():
        optional: dict[str, Any] = {}
        if one.metadata:
            optional["metadata"] = one.metadata
        if one.leader_epoch is not None:
            optional["leader_epoch"] = one.leader_epoch
        found.append(RdTopicPartition(topic, partition, one.offset, **optional))
    return found
