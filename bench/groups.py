"""`make bench-groups`: commits per second, how long rebalances take, how long coordinators load.

Three nodes on this machine, asked over plain connections, so that the client costs little. A
rebalance is measured from the moment at which one more member joins a stable group to the moment at
which the last member has its assignment. The load is a failover: ten thousand groups with ten
offsets each are committed, a node is killed, and the clock stops when groups of all partitions are
answered again. The assignors of the consumer protocol are called as the coordinator calls them,
with what a thousand members had before.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.table import Row, report
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.server_assignors import SERVER_ASSIGNORS, AssignorMember, Shares
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import Uuid
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import SIZE_BYTES, parse_response_header, read_frame_size
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.requests import encode_request
from tidelog.wire.protocol.responses import decode_response

TOPIC: Final = "work"
PARTITIONS: Final = 10
GROUPS: Final = 10_000
OFFSETS_PARTITIONS: Final = 50
COMMITTERS: Final = 64
COMMIT_S: Final = 5.0
MEMBERS: Final = (3, 30, 300)
LOAD_GOAL_S: Final = 10.0
ASSIGNED_MEMBERS: Final = 1_000
ASSIGNED_TOPICS: Final = 100
ASSIGN_GOAL_S: Final = 1.0
MEMORY_GOAL_KB: Final = 4.0
SESSION_MS: Final = 30_000
_MEMBER_ID_REQUIRED: Final = 79
_IN_PROGRESS: Final = 27
_NOT_YET: Final = {3, 14, 15, 16}


class Structs:
    """kio's classes of one version of a request, by name."""

    def __init__(self, api: ApiKey, version: int) -> None:
        self._module = import_module(APIS[api].load_request_type(version).__module__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@dataclass(slots=True)
class Link:
    """A connection; requests are pipelined."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def to(cls, address: SocketAddress) -> Link:
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def ask(self, request: Any) -> Any:
        api, version = APIS[request.__api_key__], int(request.__version__)
        async with self.turn:
            self.writer.write(encode_request(1, "bench", request))
            size = read_frame_size(await self.reader.readexactly(SIZE_BYTES))
            frame = await self.reader.readexactly(size)
        _, body = parse_response_header(api, version, frame)
        return decode_response(api.key, version, body)


class Client:
    """Knows the brokers, and who coordinates what."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [SocketAddress.parse(one) for one in bootstrap.split(",")]
        self._addresses: dict[int, SocketAddress] = {}

    async def link(self, node: int) -> Link:
        return await Link.to(self._addresses[node])

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        """Those that have one."""
        s = Structs(ApiKey.FIND_COORDINATOR, 4)
        request = s.FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(groups))
        for address in self._bootstrap:
            try:
                link = await Link.to(address)
                answer = await link.ask(request)
            except (OSError, asyncio.IncompleteReadError):
                continue
            link.writer.close()
            found = [row for row in answer.coordinators if int(row.error_code) == 0]
            for row in found:
                self._addresses[int(row.node_id)] = SocketAddress(row.host, int(row.port))
            return {row.key: int(row.node_id) for row in found}
        return {}

    async def await_coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        while len(found := await self.coordinators(groups)) < len(groups):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found


# --- requests --------------------------------------------------------------------------


def create_topic() -> Any:
    s = Structs(ApiKey.CREATE_TOPICS, 7)
    topic = s.CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=3, assignments=(), configs=()
    )
    return s.CreateTopicsRequest(topics=(topic,), timeout=duration_i32(10_000))


def commit(group: str, offset: int, partitions: Iterable[int]) -> Any:
    s = Structs(ApiKey.OFFSET_COMMIT, 8)
    rows = tuple(
        s.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        for partition in partitions
    )
    topic = s.OffsetCommitRequestTopic(name=TOPIC, partitions=rows)
    return s.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(topic,),
    )


def fetch(group: str) -> Any:
    s = Structs(ApiKey.OFFSET_FETCH, 7)
    return s.OffsetFetchRequest(group_id=group, topics=None, require_stable=False)


def join(group: str, member: str) -> Any:
    s = Structs(ApiKey.JOIN_GROUP, 5)
    return s.JoinGroupRequest(
        group_id=group,
        session_timeout=duration_i32(SESSION_MS),
        rebalance_timeout=duration_i32(SESSION_MS),
        member_id=member,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=(s.JoinGroupRequestProtocol(name="range", metadata=bytes(60)),),
    )


def sync(group: str, generation: int, member: str, shares: Mapping[str, bytes]) -> Any:
    s = Structs(ApiKey.SYNC_GROUP, 3)
    return s.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=None,
        assignments=tuple(
            s.SyncGroupRequestAssignment(member_id=name, assignment=share)
            for name, share in shares.items()
        ),
    )


def heartbeat(group: str, generation: int, member: str) -> Any:
    s = Structs(ApiKey.HEARTBEAT, 3)
    return s.HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=None
    )


# --- commits ---------------------------------------------------------------------------


async def commits_per_second(client: Client) -> float:
    """Of groups without members, one partition each, from many connections at once."""
    groups = [f"committer-{number}" for number in range(COMMITTERS)]
    nodes = await client.await_coordinators(groups)
    await asyncio.gather(*(committed(client, nodes[group], group) for group in groups))
    until = time.monotonic() + COMMIT_S

    async def go_on(group: str) -> int:
        link = await client.link(nodes[group])
        for offset in itertools.count():
            if time.monotonic() > until:
                return offset
            _raise_on_error(await link.ask(commit(group, offset, (0,))))
        raise AssertionError("counting never ends")

    done = await asyncio.gather(*map(go_on, groups))
    return sum(done) / COMMIT_S


async def committed(client: Client, node: int, group: str) -> None:
    """The first commit, however long the coordinator takes to be there."""
    link = await client.link(node)
    while _codes(await link.ask(commit(group, 0, (0,)))) & _NOT_YET:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _raise_on_error(answer: Any) -> None:
    if codes := _codes(answer) - {0}:
        raise RuntimeError(f"commits failed with {codes}")


def _codes(answer: Any) -> set[int]:
    return {int(row.error_code) for topic in answer.topics for row in topic.partitions}


# --- rebalances ------------------------------------------------------------------------


class Member:
    def __init__(self, link: Link, group: str) -> None:
        self._link, self._group = link, group
        self._member, self.generation = "", -1

    async def join(self) -> None:
        """Return with an assignment."""
        answer = await self._link.ask(join(self._group, self._member))
        if int(answer.error_code) == _MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            answer = await self._link.ask(join(self._group, self._member))
        if int(answer.error_code) != 0:
            raise RuntimeError(f"joining failed with {answer.error_code}")
        self._member, self.generation = answer.member_id, int(answer.generation_id)
        shares = {one.member_id: bytes(100) for one in answer.members}
        synced = await self._link.ask(sync(self._group, self.generation, self._member, shares))
        if int(synced.error_code) == _IN_PROGRESS:
            await self.join()

    async def follow(self) -> None:
        """Join again when a heartbeat says so."""
        while True:
            answer = await self._link.ask(heartbeat(self._group, self.generation, self._member))
            if int(answer.error_code) == _IN_PROGRESS:
                await self.join()
                return
            await asyncio.sleep(0.05)


async def rebalance_s(client: Client, members: int) -> float:
    group = f"rebalanced-{members}"
    node = (await client.await_coordinators([group]))[group]
    present = [Member(await client.link(node), group) for _ in range(members - 1)]
    await asyncio.gather(*(member.join() for member in present))
    newest = max(member.generation for member in present)
    late = [member for member in present if member.generation < newest]
    await asyncio.gather(*(member.join() for member in late))
    joiner = Member(await client.link(node), group)
    began = time.monotonic()
    await asyncio.gather(joiner.join(), *(member.follow() for member in present))
    return time.monotonic() - began


# --- loading ---------------------------------------------------------------------------


async def commit_all(client: Client, groups: Sequence[str]) -> dict[str, int]:
    nodes = await client.await_coordinators(groups)
    waiting = iter(groups)

    async def work() -> None:
        links = {node: await client.link(node) for node in set(nodes.values())}
        for group in waiting:
            _raise_on_error(await links[nodes[group]].ask(commit(group, 1, range(PARTITIONS))))

    await asyncio.gather(*(work() for _ in range(COMMITTERS)))
    return nodes


def resident_bytes(cluster: LocalCluster) -> int:
    """Of all nodes together: a group is in the memory of one, its coordinator."""
    running = (node.process for node in cluster.nodes.values())
    pages = (
        Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]
        for process in running
        if process is not None
    )
    return sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE")


async def failover_s(cluster: LocalCluster, client: Client, nodes: Mapping[str, int]) -> float:
    """Until one group of every partition is answered; then all of them must be."""
    victim = max(set(nodes.values()), key=list(nodes.values()).count)
    lost = [group for group, node in nodes.items() if node == victim]
    heads = {coordinator_partition(group, OFFSETS_PARTITIONS): group for group in lost}
    began = time.monotonic()
    cluster.kill(victim)
    await answered(client, heads.values(), victim)
    took_s = time.monotonic() - began
    await answered(client, lost, victim)
    return took_s


async def answered(client: Client, groups: Iterable[str], victim: int) -> None:
    waiting = set(groups)
    while waiting:
        links: dict[int, Link] = {}
        for group, node in (await client.coordinators(sorted(waiting))).items():
            if node == victim:
                continue
            if node not in links:
                links[node] = await client.link(node)
            answer = await links[node].ask(fetch(group))
            if int(answer.error_code) == 0:
                assert len(answer.topics[0].partitions) == PARTITIONS, group
                waiting.discard(group)
        await asyncio.sleep(0.02)


# --- the assignors ------------------------------------------------------------------------


def assignor_rows() -> Iterable[Row]:
    """10,000 partitions of 100 topics, re-assigned when members leave and join."""
    topics = [Uuid(number.to_bytes(16, "big")) for number in range(1, ASSIGNED_TOPICS + 1)]
    counts = dict.fromkeys(topics, 100)
    everything = frozenset(topics)
    alike = [everything] * ASSIGNED_MEMBERS
    half, rest = frozenset(topics[: ASSIGNED_TOPICS // 2]), frozenset(topics[10:])
    unlike = [(everything, half, rest)[number % 3] for number in range(ASSIGNED_MEMBERS)]
    for name, kinds, first, then in (
        ("uniform", alike, ASSIGNED_MEMBERS, ASSIGNED_MEMBERS - 1),
        ("uniform", alike, ASSIGNED_MEMBERS // 2, ASSIGNED_MEMBERS),
        ("uniform", unlike, ASSIGNED_MEMBERS, ASSIGNED_MEMBERS - 1),
        ("uniform", unlike, ASSIGNED_MEMBERS // 2, ASSIGNED_MEMBERS),
        ("range", alike, ASSIGNED_MEMBERS, ASSIGNED_MEMBERS - 1),
    ):
        assign = SERVER_ASSIGNORS[name]
        had = assign(counts, _members(kinds[:first], {}))
        members = _members(kinds[:then], had)
        began = time.perf_counter()
        assign(counts, members)
        took_s = time.perf_counter() - began
        wants = "alike" if kinds is alike else "unlike"
        what = f"{name} re-assigns 10,000 partitions, {wants}, {first} to {then} members"
        yield Row(what, took_s, "s", ASSIGN_GOAL_S, "lower")


def _members(kinds: Sequence[frozenset[Uuid]], had: Shares) -> list[AssignorMember]:
    return [
        AssignorMember(f"member-{number:04}", topics, None, had.get(f"member-{number:04}", {}))
        for number, topics in enumerate(kinds)
    ]


async def measure(cluster: LocalCluster) -> list[Row]:
    client = Client(cluster.bootstrap)
    first = await Link.to(SocketAddress.parse(cluster.bootstrap.split(",")[0]))
    await first.ask(create_topic())
    rows = [Row("commits, 64 groups at once", await commits_per_second(client), "per s")]
    for members in MEMBERS:
        took_s = await rebalance_s(client, members)
        rows.append(Row(f"rebalance of {members} members", took_s, "s"))
    groups = [f"loaded-{number}" for number in range(GROUPS)]
    before = resident_bytes(cluster)
    nodes = await commit_all(client, groups)
    grown = (resident_bytes(cluster) - before) / GROUPS / 1024
    rows.append(Row("memory per idle group with 10 offsets", grown, "KB", MEMORY_GOAL_KB, "lower"))
    took_s = await failover_s(cluster, client, nodes)
    rows.append(Row("failover of 10,000 groups × 10 offsets", took_s, "s", LOAD_GOAL_S, "lower"))
    return rows


def main() -> int:
    settings = {"group.initial.rebalance.delay.ms": "500"}
    with LocalCluster(3, settings=settings) as cluster:
        rows = asyncio.run(measure(cluster))
        cluster.kill_all()
    report("groups", [*rows, *assignor_rows()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
