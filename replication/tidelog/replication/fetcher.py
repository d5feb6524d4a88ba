"""The follower's side of fetch streams: one `LeaderLink` for each leader this node follows.

A link keeps one stream to its leader and fetches all partitions over it. Answers are carried out
on the spot; then, in one message, the partitions ask for more and report what moved meanwhile. So
the bytes of a batch are asked for and appended while the fsync of the one before is under way, and
the flushed end goes to the leader as soon as it moves, without waiting for a fetch to come back.

Sending never waits: requests are small, and if the stream's queue is full the same request is
offered again a little later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import BrokerEpoch, NodeId, Offset
from tidelog.kernel.peers import PeerError, PeerRefused, Peers, PeerStream
from tidelog.replication.alarm import Alarm
from tidelog.replication.fetch_answer import AnsweredPartition, FetchAnswer
from tidelog.replication.fetch_messages import (
    FETCH,
    ChunkJoiner,
    MalformedMessage,
    fetched_of,
    ref_of,
    request_message,
)
from tidelog.replication.fetch_requests import FetchRequests, Followed
from tidelog.replication.partition import Partition
from tidelog.replication.settings import ReplicationSettings
from tidelog.replication.throttle import ReplicationQuota, is_throttled
from tidelog.v1.replication_pb2 import FetchRequest

_log = logging.getLogger(__name__)

_FULL_QUEUE_RETRY_MS: Final = 5.0
_REFUSED_RETRY_S: Final = 0.2
_SILENCE_WAITS: Final = 4
_LEAST_SILENCE_MS: Final = 2_000
"""A leader says something every ``replica.fetch.wait.max.ms``; after several missed ones the
stream is taken to be dead, whatever the transport thinks."""


class FetcherHost(Protocol):
    """What the fetcher needs of its node."""

    node_id: NodeId
    settings: ReplicationSettings
    follower_quota: ReplicationQuota

    @property
    def partitions(self) -> Mapping[PartitionRef, Partition]: ...

    def now_ms(self) -> float: ...

    def broker_epoch(self) -> BrokerEpoch: ...


class Fetcher:
    """All leaders this node follows; owned by ``ReplicaSet``."""

    def __init__(self, host: FetcherHost, peers: Peers) -> None:
        self._host = host
        self._peers = peers
        self._links: dict[NodeId, LeaderLink] = {}
        self._leader_of: dict[PartitionRef, NodeId] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition) -> None:
        """The partition follows a leader, perhaps another one or in another epoch than before."""
        machine = partition.follower
        assert machine is not None
        if self._leader_of.get(partition.ref) != machine.leader:
            self.unfollow(partition.ref)
        link = self._links.get(machine.leader)
        if link is None:
            link = self._links[machine.leader] = LeaderLink(self._host, self._peers, machine.leader)
        self._leader_of[partition.ref] = machine.leader
        link.follow(partition)

    def unfollow(self, ref: PartitionRef) -> None:
        leader = self._leader_of.pop(ref, None)
        if leader is not None:
            link = self._links[leader]
            link.unfollow(ref)
            if link.is_idle:
                del self._links[leader]
                self._let_end(link)

    def _let_end(self, link: LeaderLink) -> None:
        task = link.stop()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def progressed(self, partition: Partition) -> None:
        leader = self._leader_of.get(partition.ref)
        if leader is not None:
            self._links[leader].progressed(partition)

    def leader_end(self, ref: PartitionRef) -> Offset | None:
        """Where the leader's log ended when it last answered; None if nobody is followed."""
        leader = self._leader_of.get(ref)
        return None if leader is None else self._links[leader].leader_end(ref)

    async def close(self) -> None:
        for link in list(self._links.values()):
            self._let_end(link)
        self._links.clear()
        self._leader_of.clear()
        if self._ending:
            await asyncio.wait(self._ending)


class LeaderLink:
    """See the module."""

    def __init__(self, host: FetcherHost, peers: Peers, leader: NodeId) -> None:
        self._host = host
        self._peers = peers
        self._leader = leader
        self._requests = FetchRequests(host.follower_quota)
        self._stream: PeerStream[FetchRequest, FetchAnswer] | None = None
        self._joiner = ChunkJoiner()
        self._unsent: FetchRequest | None = None
        self._is_pumping = False
        self._is_cut_off = False
        """Told, and not to be told again before the leader has answered."""
        self._alarm = Alarm(self._pump_soon)
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetch from {leader}"
        )

    @property
    def is_idle(self) -> bool:
        return not self._requests.followed

    def stop(self) -> asyncio.Task[None]:
        self._alarm.cancel()
        self._task.cancel()
        return self._task

    def leader_end(self, ref: PartitionRef) -> Offset | None:
        followed = self._requests.followed.get(ref)
        return None if followed is None else followed.leader_end

    # --- what is followed --------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        machine = partition.follower
        assert machine is not None
        entries = partition.log.config.follower_replication_throttled_replicas
        throttled = is_throttled(entries, partition.ref.partition, self._host.node_id)
        self._requests.follow(Followed(partition.ref, machine, partition.local(), throttled))
        self._pump_soon()

    def unfollow(self, ref: PartitionRef) -> None:
        self._requests.unfollow(ref)
        self._pump_soon()

    def progressed(self, partition: Partition) -> None:
        if self._requests.progressed(partition.ref, partition.local()):
            self._pump_soon()

    # --- the stream --------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            stream = self._peers.open_stream(self._leader, FETCH)
            self._stream = stream
            self._joiner = ChunkJoiner()
            self._unsent = None
            self._requests.stream_opened()
            self._pump_soon()
            try:
                await self._receive(stream)
            except PeerRefused as error:
                self._tell_outage(logging.WARNING, f"it refuses to be fetched from: {error}")
                await asyncio.sleep(_REFUSED_RETRY_S)
            except (PeerError, TimeoutError) as error:
                self._tell_outage(logging.INFO, f"the fetch stream ended: {error}")
            except MalformedMessage as error:
                self._tell_outage(logging.ERROR, str(error))
                await asyncio.sleep(_REFUSED_RETRY_S)
            finally:
                self._stream = None
                stream.close()

    def _tell_outage(self, level: int, what: str) -> None:
        """Once for each; a leader that is away for an hour is tried many times."""
        if not self._is_cut_off:
            self._is_cut_off = True
            _log.log(level, "node %d: %s; trying again until it answers", self._leader, what)

    def _tell_recovery(self) -> None:
        if self._is_cut_off:
            self._is_cut_off = False
            _log.info("node %d can be fetched from again", self._leader)

    async def _receive(self, stream: PeerStream[FetchRequest, FetchAnswer]) -> None:
        while True:
            wait_ms = self._host.settings.fetch_wait_max_ms
            silence_ms = max(_SILENCE_WAITS * wait_ms, _LEAST_SILENCE_MS)
            async with asyncio.timeout(silence_ms / 1000):
                response = await stream.receive()
            self._take(response)

    def _take(self, response: FetchAnswer) -> None:
        if response.error_code:
            raise MalformedMessage(f"it refuses every fetch with error {response.error_code}")
        self._tell_recovery()
        for one in response.partitions:
            self._take_partition(response.correlation_id, one)
        if not response.partitions:
            self._requests.owe_sign_of_life()
        self._pump_soon()

    def _take_partition(self, correlation_id: int, one: AnsweredPartition) -> None:
        joined = self._joiner.take(one)
        if joined is None:
            return
        head, records = joined.head, joined.records
        ref = ref_of(head.topic_id, head.partition)
        followed = self._requests.followed.get(ref)
        partition = self._host.partitions.get(ref)
        if followed is None or partition is None or partition.follower is not followed.machine:
            return  # no longer followed, or in another epoch since
        fetched = fetched_of(head, len(records))
        followed.leader_end = Offset(head.log_end_offset)
        if followed.is_throttled and records:
            self._host.follower_quota.record(self._host.now_ms(), len(records))
        partition.take_answer(correlation_id, fetched, records)
        if partition.follower is followed.machine:
            followed.log = partition.local()
            self._requests.ask_again(ref)

    # --- asking ------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Everything that happens in this turn of the loop goes into one message."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        stream = self._stream
        if stream is None:
            return
        now_ms = self._host.now_ms()
        if self._unsent is None:
            for ref in self._requests.asking():
                partition = self._host.partitions.get(ref)
                if partition is not None:
                    self._requests.followed[ref].log = partition.local()
            plan = self._requests.next_request(now_ms)
            if plan is None:
                self._set_alarm(now_ms)
                return
            self._unsent = request_message(plan, self._host.broker_epoch(), self._host.settings)
        if stream.offer(self._unsent):
            self._unsent = None
            self._set_alarm(now_ms)
        else:
            self._alarm.set_in(_FULL_QUEUE_RETRY_MS)

    def _set_alarm(self, now_ms: float) -> None:
        due_ms = self._requests.next_due_ms(now_ms)
        if due_ms is not None:
            self._alarm.set_in(due_ms - now_ms)
