"""The controller as the state machine of the metadata quorum.

Theory (DESIGN 2, decision 8): there is one way to change the cluster. A decision is a pure function
of an image; its records are replayed, proposed, and the answer is given when they are committed.
So that decisions need not wait for each other, the active controller keeps two images: the
*committed* one, which every member has, and the *decided* one, which is the committed one with its
own uncommitted records on top. Decisions are made on the decided image, in one go on the event
loop: nothing can come between looking at the image and proposing.

A proposal of our own that is applied is recognised by its offset and term; the image it led to was
kept with it, so nothing is replayed twice. When leadership ends the decided image is dropped: what
was proposed may or may not be committed by the next leader, and whoever waits is told
NOT_CONTROLLER.

An answer that needed no records may still rest on records that are not committed yet, so it waits
for the last proposal before it, as a write does.

Owner: the node. Invariant: while active, decided image = committed image + pending, in order. A
record that does not fit, or a foreign record while active, breaks it; the node is then halted,
because to go on would be to hold another truth than the rest of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from tidelog.controller.decisions.features import bootstrap_records
from tidelog.controller.decisions.outcome import MAX_RECORDS_PER_DECISION, Decision
from tidelog.controller.decisions.policy import ELR_FEATURE, ControllerPolicy
from tidelog.controller.liveness import (
    BecameActive,
    BecameStandby,
    BrokerLiveness,
    BrokerRegistered,
    BrokerUnregistered,
)
from tidelog.controller.metadata import records as r
from tidelog.controller.metadata.image import InconsistentMetadata, MetadataImage
from tidelog.controller.metadata.snapshot import (
    DamagedSnapshot,
    image_from_records,
    image_to_records,
)
from tidelog.controller.quorum.interface import (
    CommittedBatch,
    MetadataQuorum,
    NotController,
    Proposal,
    QuorumOverloaded,
)
from tidelog.controller.raft.model import SnapshotId, Term
from tidelog.controller.service.absences import Absences
from tidelog.controller.service.history import MetadataHistory
from tidelog.controller.service.meters import ControllerMeters
from tidelog.kernel.ids import NodeId, Offset
from tidelog.kernel.ports import Clock, Random

R = TypeVar("R")

_log = logging.getLogger(__name__)

Halt: TypeAlias = Callable[[str, BaseException], None]
"""Stops the node; says why."""


class DecisionTooLarge(Exception):
    """The records of one decision do not fit into one batch of the metadata log."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What is decided and why, for the log."""

    what: str
    why: str
    is_routine: bool = False
    """Whether it happens so often that only a debug log wants it."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision is made of."""

    image: MetadataImage
    policy: ControllerPolicy
    random: Random
    next_offset: Offset
    """Where the decision's first record will stand in the log."""


Decide: TypeAlias = Callable[[Basis], Decision[R]]


@dataclass(frozen=True, slots=True)
class Change(Generic[R]):
    """A decision that was taken. Its response counts once ``committed`` is done."""

    response: R
    committed: asyncio.Future[None] | None
    """None if there was nothing to wait for."""

    async def answer(self) -> R:
        """The response, when it is certain; ``NotController`` if it never became so."""
        if self.committed is not None:
            # Shielded: many may wait for one proposal, and who gives up must not end it.
            await asyncio.shield(self.committed)
        return self.response


@dataclass(frozen=True, slots=True)
class _Pending:
    proposal: Proposal
    image: MetadataImage
    """After its records."""


class Controller:
    """Implements ``StateMachine``. ``attach`` gives it its quorum before anything else happens."""

    def __init__(
        self,
        policy: ControllerPolicy,
        *,
        clock: Clock,
        random: Random,
        halt: Halt,
        registration: r.RegisterController | None = None,
    ) -> None:
        settings = policy.settings
        self.policy: Final = policy
        self.clock: Final = clock
        self.liveness: Final = BrokerLiveness(
            grace_ms=settings.get_int("broker.stream.grace.ms"),
            session_ms=settings.get_int("broker.session.timeout.ms"),
        )
        self.absences: Final = Absences()
        self.history: Final = MetadataHistory(clock)
        self.meters: Final = ControllerMeters()
        self.activated: Final = asyncio.Event()
        """Set by each election of this node; whoever waits for it clears it."""
        self.last_proposed_ms = clock.monotonic_ms()
        self._random = random
        self._halt = halt
        self._registration = registration
        self._attached: MetadataQuorum | None = None
        self._committed = MetadataImage()
        self._decided: MetadataImage | None = None
        self._decided_end = Offset(0)
        self._pending: deque[_Pending] = deque()

    def attach(self, quorum: MetadataQuorum) -> None:
        self._attached = quorum

    @property
    def quorum(self) -> MetadataQuorum:
        if self._attached is None:
            raise RuntimeError("the controller was not attached to its quorum")
        return self._attached

    @property
    def node_id(self) -> NodeId:
        return self.policy.node_id

    @property
    def is_active(self) -> bool:
        return self._decided is not None

    @property
    def committed(self) -> MetadataImage:
        """What every member agrees on."""
        return self._committed

    @property
    def image(self) -> MetadataImage:
        """What the next decision is made on."""
        return self._committed if self._decided is None else self._decided

    # Deciding.

    def decide(self, cause: Cause, decide: Decide[R]) -> Change[R]:
        """Decide and propose at once.

        ``NotController``, ``QuorumOverloaded`` or ``DecisionTooLarge`` if that is not possible.
        """
        image = self._decided
        if image is None:
            raise NotController(self.quorum.leader_id, f"node {self.node_id} is not active")
        basis = Basis(image, self.policy, self._random, self._next_offset())
        decision = decide(basis)
        for start in range(0, len(decision.records), MAX_RECORDS_PER_DECISION):
            # Only what may be applied in part is ever this long (a broker's many partitions).
            self._propose(decision.records[start : start + MAX_RECORDS_PER_DECISION])
        if decision.records:
            self.meters.decided(decision.records)
            self._log_decision(cause, decision.records)
        last = self._pending[-1].proposal.committed if self._pending else None
        return Change(decision.response, last)

    async def change(self, cause: Cause, decide: Decide[R]) -> R:
        """Decide, and answer when it is committed."""
        return await self.decide(cause, decide).answer()

    def _next_offset(self) -> Offset:
        """The quorum has records of its own in the log, which are not shown to us."""
        return Offset(max(self._decided_end, self.quorum.high_watermark))

    def _propose(self, records: Sequence[r.MetadataRecord]) -> None:
        if self._decided is None:
            raise NotController(self.quorum.leader_id, "leadership was lost on the way")
        # Replayed first: records that do not fit must never get into the log.
        expected = self._next_offset()
        image = replay(self._decided, expected, records)
        try:
            proposal = self.quorum.propose(records)
        except ValueError as error:
            raise DecisionTooLarge(str(error)) from error
        if proposal.base_offset != expected:
            image = replay(self._decided, proposal.base_offset, records)
        self._decided = image
        self._decided_end = Offset(proposal.last_offset + 1)
        self._pending.append(_Pending(proposal, image))
        self.last_proposed_ms = self.clock.monotonic_ms()
        proposal.committed.add_done_callback(_note_outcome)

    def _log_decision(self, cause: Cause, records: Sequence[r.MetadataRecord]) -> None:
        level = logging.DEBUG if cause.is_routine else logging.INFO
        proposal = self._pending[-1].proposal
        extra = {
            "what": cause.what,
            "why": cause.why,
            "epoch": proposal.term,
            "end_offset": proposal.last_offset + 1,
            "record_count": len(records),
        }
        _log.log(level, "%s, because %s", cause.what, cause.why, extra=extra)

    # What the quorum calls.

    def apply(self, batch: CommittedBatch) -> None:
        try:
            self._apply(batch)
        except InconsistentMetadata as error:
            self._halt(f"the metadata at offset {batch.base_offset} does not fit", error)

    def _apply(self, batch: CommittedBatch) -> None:
        own = self._pending[0] if self._pending else None
        if own is not None and _is_same(own.proposal, batch):
            self._pending.popleft()
            image = own.image
        elif self._decided is not None and batch.records:
            raise InconsistentMetadata(
                f"the batch at {batch.base_offset} in term {batch.term} is not what this active"
                f" controller proposed in term {self.quorum.term}"
            )
        else:
            image = replay(self._committed, batch.base_offset, batch.records)
        self._committed = image
        self.history.append(batch, image)
        self._note_brokers(batch.records)

    def load_snapshot(self, snapshot: SnapshotId, records: Iterable[r.MetadataRecord]) -> None:
        try:
            image = image_from_records(records, Offset(snapshot.end_offset - 1))
        except (DamagedSnapshot, InconsistentMetadata) as error:
            self._halt(f"the metadata snapshot {snapshot} is damaged", error)
            return
        gone = [broker for broker in self._committed.brokers if broker not in image.brokers]
        self._committed = image
        self.history.restart(snapshot, image)
        now_ms = self.clock.monotonic_ms()
        for broker in sorted(gone):
            self.liveness.step(now_ms, BrokerUnregistered(broker))
        for broker in sorted(image.brokers):
            registration = image.brokers[broker]
            self.liveness.step(now_ms, BrokerRegistered(broker, registration.epoch))
            if not registration.fenced:
                self.absences.returned(broker)

    def snapshot_records(self) -> Iterable[r.MetadataRecord]:
        return image_to_records(self._committed)

    def became_active(self, term: Term) -> None:
        self._pending.clear()
        self._decided = self._committed
        self._decided_end = self.history.end_offset
        _log.info(
            "node %s is the active controller of term %s", self.node_id, term, extra={"epoch": term}
        )
        self.liveness.step(self.clock.monotonic_ms(), BecameActive())
        self.activated.set()
        try:
            self._begin_term()
        except (NotController, QuorumOverloaded) as error:
            _log.warning("could not begin term %s: %s", term, error)

    def became_standby(self) -> None:
        if self._decided is None:
            return
        self._decided = None
        self._pending.clear()
        self.liveness.step(self.clock.monotonic_ms(), BecameStandby())
        _log.info("node %s is no longer the active controller", self.node_id)

    def _begin_term(self) -> None:
        if not self._committed.features:
            cause = Cause("begin the cluster's metadata", "there is none yet")
            self.decide(cause, lambda basis: Decision(_first_records(basis.policy), None))
        own = self._registration
        if own is not None and _differs(self._committed, own):
            cause = Cause(f"register controller {own.controller_id}", "it was elected")
            self.decide(cause, lambda _: Decision((own,), None))

    def _note_brokers(self, records: Sequence[r.MetadataRecord]) -> None:
        now_ms = self.clock.monotonic_ms()
        for record in records:
            if isinstance(record, r.RegisterBroker):
                event = BrokerRegistered(record.broker_id, record.broker_epoch)
                self.liveness.step(now_ms, event)
            elif isinstance(record, r.UnregisterBroker):
                self.liveness.step(now_ms, BrokerUnregistered(record.broker_id))
            elif isinstance(record, r.BrokerRegistrationChange) and record.fenced is False:
                self.absences.returned(record.broker_id)


def replay(
    image: MetadataImage, base_offset: Offset, records: Sequence[r.MetadataRecord]
) -> MetadataImage:
    for offset, record in enumerate(records, start=base_offset):
        image = image.apply(record, Offset(offset))
    return image


def _is_same(proposal: Proposal, batch: CommittedBatch) -> bool:
    return (proposal.base_offset, proposal.last_offset, proposal.term) == (
        batch.base_offset,
        batch.last_offset,
        batch.term,
    )


def _note_outcome(committed: asyncio.Future[None]) -> None:
    """A proposal nobody waits for may fail without anyone asking why."""
    if not committed.cancelled():
        committed.exception()


def _first_records(policy: ControllerPolicy) -> tuple[r.MetadataRecord, ...]:
    records = bootstrap_records(policy)
    if policy.settings.get_bool("eligible.leader.replicas.enable"):
        return records
    return tuple(
        record
        for record in records
        if not (isinstance(record, r.FeatureLevel) and record.name == ELR_FEATURE)
    )


def _differs(image: MetadataImage, registration: r.RegisterController) -> bool:
    known = image.controllers.get(registration.controller_id)
    return known is None or known.record() != registration
