"""The leader of one partition: who is in sync, what is committed, what a follower is told. Pure.

Owner: the partition's shell, which tells what happened to the log (`appended`, `flushed`), what
followers and the controller sent (`fetched`, `answered`, `updated`) and what time it is. After
each call it looks at ``high_watermark`` and asks `take_report` for what the controller is to be
told. A machine lives for one leader epoch; the next epoch gets a new one.

Theory. The high watermark is the least *flushed* end of this replica, of every member of the ISR
and of whoever is about to join it; below it nothing is ever lost while one of them is left. The
ISR belongs to the controller: the leader proposes a change, one at a time, and until it knows the
outcome counts everybody who may be a member by then (the *maximal* ISR, hazard 5).

Invariants:
- The high watermark never falls, and stands still while the ISR is smaller than
  min(min.insync.replicas, number of replicas) (KIP-966, hazard 7).
- A follower's ends count only after its epoch and its history were found to match.
- The broker epoch in a report is the one seen when the follower became eligible; sending a report
  again sends the same report (KIP-903, hazard 6).
- Admission looks at the follower's flushed end alone, never at the high watermark reaching the
  epoch's start, which a frozen high watermark would make impossible (hazard 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tidelog.controller.decisions.alter_partition import IsrMember, PartitionReport
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionEpoch
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.remote_replica import (
    NEVER_MS,
    NOBODY_HEARD,
    FollowerFetch,
    RemoteReplica,
)
from tidelog.replication.settings import ISR_CHECK_INTERVAL_MS, ReplicationSettings
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochEnd

ALL: Final = -1
"""acks=all."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The follower's history is a prefix of ours; ``high_watermark`` is as it was before."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class Diverged:
    """The follower must cut its log first: ours ends the epoch it asked about here."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class Refused:
    code: ErrorCode


FetchVerdict: TypeAlias = Accepted | Diverged | Refused


class Answer(Enum):
    """What became of a report to the controller."""

    ADOPTED = "adopted"
    REVERTED = "reverted"
    AWAITS_METADATA = "awaits metadata"
    SEND_AGAIN = "send again"
    STALE = "stale"


_NOT_DONE: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(frozen=True, slots=True)
class LeaderStart:
    """Where the log stands at the moment this replica becomes leader."""

    now_ms: float
    end: Offset
    flushed_end: Offset
    high_watermark: Offset


class LeaderPartition:
    """See the module."""

    def __init__(
        self,
        me: NodeId,
        ref: PartitionRef,
        state: PartitionState,
        cluster: ClusterView,
        settings: ReplicationSettings,
        min_insync_replicas: int,
        start: LeaderStart,
    ) -> None:
        self.me = me
        self.ref = ref
        self.state = state
        self.settings = settings
        self.min_insync_replicas = min_insync_replicas
        self.epoch_start = start.end
        self.end = start.end
        self.flushed_end = start.flushed_end
        self.high_watermark = start.high_watermark
        self.remotes: dict[NodeId, RemoteReplica] = {}
        self._cluster = cluster
        self._pending: PartitionReport | None = None
        self._maximal_isr = frozenset(state.isr)
        self._unsent: PartitionReport | None = None
        self._quiet_until_ms = NEVER_MS
        self._follow_assignment(start.now_ms)
        self._advance(start.now_ms)

    # --- where it stands ---------------------------------------------------------------

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def partition_epoch(self) -> PartitionEpoch:
        return self.state.partition_epoch

    @property
    def isr(self) -> tuple[NodeId, ...]:
        """As committed by the controller."""
        return self.state.isr

    @property
    def maximal_isr(self) -> frozenset[NodeId]:
        """The committed ISR and who may have joined it meanwhile."""
        return self._maximal_isr

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_insync_replicas, len(self.state.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.effective_min_isr

    @property
    def is_established(self) -> bool:
        """Whether the high watermark has reached the epoch's start (hazard 8).

        Before that, offsets are not told to clients: the former leader may have shown more.
        """
        return self.high_watermark >= self.epoch_start

    @property
    def pending_report(self) -> PartitionReport | None:
        """The change of the ISR whose outcome is not known yet."""
        return self._pending

    def min_clean_point(self, own: Offset) -> Offset:
        """Up to where every counting replica has compacted (DESIGN 2.4)."""
        return min([own, *(remote.clean_point for remote in self._counting_remotes())])

    def wanted_clean_point(self, own_held_back_to: Offset) -> Offset:
        """How far everybody has to compact so that what has outlived its time may go."""
        return max([own_held_back_to, *(one.held_back_to for one in self._counting_remotes())])

    @property
    def clean_points(self) -> dict[NodeId, Offset]:
        """Of all other replicas that count."""
        return {remote.broker: remote.clean_point for remote in self._counting_remotes()}

    def _counting_remotes(self) -> list[RemoteReplica]:
        """Without those that start over, empty: they bring nothing old back."""
        empty = self.state.restarts_empty
        return [remote for broker, remote in self.remotes.items() if broker not in empty]

    def low_watermark(self, own_log_start: Offset) -> Offset:
        """The least log start of all live replicas: below it records are gone everywhere."""
        lowest = own_log_start
        for broker, remote in self.remotes.items():
            if self._cluster.is_alive(broker):
                lowest = min(lowest, remote.log_start)
        return lowest

    # --- producing ---------------------------------------------------------------------

    def refusal_of_append(self, acks: int) -> ErrorCode:
        """Asked before anything is written."""
        if acks == ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def outcome_of_append(self, required_end: Offset) -> ErrorCode | None:
        """For a producer with acks=all whose batch ends at ``required_end``; None: wait.

        The same for a batch that was there already: its producer must not hear of success
        before the original is replicated (hazard 39).
        """
        if self.high_watermark < required_end:
            return None
        if len(self._maximal_isr) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def appended(self, now_ms: float, end: Offset, flushed_end: Offset) -> bool:
        """The log grew; True if the high watermark moved."""
        for remote in self.remotes.values():
            remote.leader_appended(now_ms, self.end)
        self.end = end
        return self.flushed(now_ms, flushed_end)

    def flushed(self, now_ms: float, flushed_end: Offset) -> bool:
        self.flushed_end = flushed_end
        return self._advance(now_ms)

    # --- followers ---------------------------------------------------------------------

    def fetched(
        self, now_ms: float, fetch: FollowerFetch, ours: EpochEnd, log_start: Offset
    ) -> FetchVerdict:
        """Judge a follower's fetch, and take its progress into account if it is accepted.

        ``ours`` is where our log ends the epoch the follower fetched last (anything if it has
        none).
        """
        code = self._fence(fetch)
        if code is not None:
            return Refused(code)
        if fetch.last_fetched_epoch is not None and ours == UNDEFINED_END:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if fetch.fetch_offset < log_start:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if fetch.last_fetched_epoch is not None and (
            ours.epoch < fetch.last_fetched_epoch or ours.end_offset < fetch.fetch_offset
        ):
            return Diverged(ours)
        if fetch.fetch_offset > self.end:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        before = self.high_watermark
        remote = self.remotes[fetch.follower]
        remote.fetched(now_ms, fetch, self.end)
        self._propose_joining(now_ms, remote)
        self._advance(now_ms)
        return Accepted(before)

    def _fence(self, fetch: FollowerFetch) -> ErrorCode | None:
        if fetch.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if fetch.leader_epoch > self.leader_epoch or fetch.follower not in self.remotes:
            # A replica that is not assigned knows a newer assignment, or is about to learn one.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        newest = self.remotes[fetch.follower].broker_epoch or 0
        if fetch.broker_epoch < max(newest, self._cluster.epoch_of(fetch.follower)):
            # A former life of the follower: what it had flushed may be gone.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def _advance(self, now_ms: float) -> bool:
        """Raise the high watermark as far as everybody who counts has flushed."""
        if self.is_under_min_isr:
            return False
        lowest = self.flushed_end
        for broker, remote in self.remotes.items():
            if remote.flushed_end < lowest and (
                broker in self._maximal_isr or self._is_about_to_join(now_ms, remote)
            ):
                lowest = remote.flushed_end
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _is_about_to_join(self, now_ms: float, remote: RemoteReplica) -> bool:
        """Waiting for it now keeps the high watermark from running away from it."""
        return self._is_in_sync(now_ms, remote) and self._cluster.may_join(
            remote.broker, remote.broker_epoch, self.state
        )

    # --- the ISR -----------------------------------------------------------------------

    def _propose_joining(self, now_ms: float, remote: RemoteReplica) -> None:
        if (
            remote.broker not in self._maximal_isr
            and self._pending is None
            and remote.is_following
            and remote.flushed_end >= max(self.high_watermark, self.epoch_start)
            and now_ms >= self._quiet_until_ms
            and self._cluster.may_join(remote.broker, remote.broker_epoch, self.state)
        ):
            self._propose((*self.state.isr, remote.broker))

    def check_isr(self, now_ms: float, heard_ms: Mapping[NodeId, float] = NOBODY_HEARD) -> bool:
        """Propose to drop who is slow, or silent; whether there is a new report.

        ``heard_ms``: any message on a broker's stream. Asked of every partition twice a second.
        """
        since_ms, end = now_ms - self.settings.session_timeout_ms, self.end
        is_all_well = len(self._maximal_isr) > len(self.remotes)
        for broker, remote in self.remotes.items():
            remote.is_following = (
                heard_ms.get(broker, NEVER_MS) >= since_ms or remote.heard_ms >= since_ms
            )
            is_all_well = is_all_well and remote.is_following and remote.flushed_end >= end
        if self._pending is not None or now_ms < self._quiet_until_ms:
            return False
        if is_all_well:  # as nearly always, on a node with thousands of partitions
            return self._unsent is not None
        out = {
            broker
            for broker in self.state.isr
            if broker != self.me and not self._is_in_sync(now_ms, self.remotes[broker])
        }
        if out:
            self._propose(tuple(broker for broker in self.state.isr if broker not in out))
        elif len(self._maximal_isr) <= len(self.remotes):
            self._propose_whoever_may_join(now_ms)
        return self._unsent is not None

    def _propose_whoever_may_join(self, now_ms: float) -> None:
        """An idle follower says nothing new: what kept it out may have changed all the same."""
        for remote in self.remotes.values():
            if remote.broker not in self._maximal_isr and self._is_in_sync(now_ms, remote):
                self._propose_joining(now_ms, remote)

    def brokers_changed(self, now_ms: float) -> None:
        """Fenced, unfenced, registered: somebody may join, or is waited for no more."""
        self._advance(now_ms)
        self._propose_whoever_may_join(now_ms)

    def _is_in_sync(self, now_ms: float, remote: RemoteReplica) -> bool:
        return remote.is_caught_up(now_ms, self.end, self.settings.lag_time_max_ms)

    def _propose(self, isr: tuple[NodeId, ...]) -> None:
        # Who joins was found registered with the epoch of its fetches; from here on the report
        # stays as it is, however often it is sent.
        members = tuple(IsrMember(broker, self._cluster.epoch_of(broker)) for broker in isr)
        self._pending = self._unsent = PartitionReport(
            self.ref, self.leader_epoch, self.partition_epoch, members
        )
        self._maximal_isr = frozenset((*self.state.isr, *isr))

    def take_report(self) -> PartitionReport | None:
        """What the controller has to be told, once."""
        report, self._unsent = self._unsent, None
        return report

    def answered(
        self, now_ms: float, report: PartitionReport, code: ErrorCode, state: PartitionState | None
    ) -> Answer:
        """The controller's answer to a report; ``state`` is given with NONE."""
        if report is not self._pending:
            return Answer.STALE
        if code is ErrorCode.NONE and state is not None:
            if state.leader_epoch != self.leader_epoch:
                return Answer.AWAITS_METADATA
            if state.partition_epoch >= self.partition_epoch:
                self._adopt(now_ms, state)
            return Answer.ADOPTED
        if code in _NOT_DONE:
            self._settle()
            self._quiet_until_ms = now_ms + ISR_CHECK_INTERVAL_MS
            self._advance(now_ms)
            return Answer.REVERTED
        if code in _OVERTAKEN:
            # It may have been carried out by an earlier sending: whoever might be a member
            # counts until the metadata says otherwise.
            return Answer.AWAITS_METADATA
        return Answer.SEND_AGAIN

    def _settle(self) -> None:
        self._pending = self._unsent = None
        self._maximal_isr = frozenset(self.state.isr)

    def _adopt(self, now_ms: float, state: PartitionState) -> None:
        self.state = state
        self._settle()
        self._follow_assignment(now_ms)
        # In this order: whoever was dropped for being slow is behind once the others go on.
        self._advance(now_ms)
        self._propose_whoever_may_join(now_ms)

    def updated(self, now_ms: float, state: PartitionState) -> bool:
        """The partition as metadata has it, in the same leader epoch; False if it is old news."""
        if state.leader_epoch != self.leader_epoch:
            raise ValueError(f"{self.ref}: another leader epoch needs another machine")
        if state.partition_epoch < self.partition_epoch:
            return False
        if state.partition_epoch == self.partition_epoch:
            # Nothing that was decided about the ISR: a change under way may still be accepted.
            self.state = state
        else:
            self._quiet_until_ms = NEVER_MS
            self._adopt(now_ms, state)
        return True

    def configured(
        self, now_ms: float, settings: ReplicationSettings, min_insync_replicas: int
    ) -> bool:
        self.settings = settings
        self.min_insync_replicas = min_insync_replicas
        return self._advance(now_ms)

    def _follow_assignment(self, now_ms: float) -> None:
        assigned = [broker for broker in self.state.replicas if broker != self.me]
        self.remotes = {
            broker: self.remotes.get(broker) or self._unknown(broker, now_ms) for broker in assigned
        }

    def _unknown(self, broker: NodeId, now_ms: float) -> RemoteReplica:
        caught_up_ms = now_ms if broker in self.state.isr else NEVER_MS
        return RemoteReplica(broker, now_ms, caught_up_ms, now_ms, self.end)
