"""The groups of one partition over a log in memory: answers come with replication, or never."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from shard_lab import MemoryPartition, in_world, loaded, shard_set

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.classic_group import GroupDescription, GroupSettings
from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.consumer.context import ConsumerGroupSettings
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, ConsumerHeartbeatResult
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.offsets import Fetched, OffsetSettings, OffsetToCommit
from tidelog.coordinator.runtime.former_rebalances import MOST_GROUPS, FormerRebalances
from tidelog.coordinator.runtime.group_shard import (
    GroupShard,
    GroupShardSettings,
    OffsetsDeleted,
)
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet
from tidelog.coordinator.subscriptions import Subscription, encode_subscription
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.simulation import World

OFFSETS_TOPIC = Path(__file__).parents[2] / "data/golden/offsets-topic"
TOPIC_ID = Uuid(bytes(range(16)))
TOPICS = KnownTopics([TopicInfo(TOPIC_ID, "t", 4)], version=1)
SETTINGS = GroupShardSettings(
    GroupSettings(initial_rebalance_delay_ms=0), ConsumerGroupSettings(), OffsetSettings()
)
NONE = ErrorCode.NONE


class Lab:
    """One shard; it can be lost and loaded again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partition = MemoryPartition()
        self.former = FormerRebalances()
        self.shards: ShardSet[GroupShard] = shard_set(world, self._make)

    def _make(self, writer: ShardLog, watch: Callable[[], None]) -> GroupShard:
        return GroupShard(writer, watch, SETTINGS, TOPICS, self.former)

    async def load(self) -> GroupShard:
        self.shards.resign(0)
        self.shards.lead(0, self.partition, self.partition.leader_epoch)
        return await loaded(self.shards)


def in_lab(scenario: Callable[[Lab], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        await scenario(Lab(world))

    in_world(main)


def join(
    shard: GroupShard, member_id: str = "", *, group: str = "g", protocol_type: str = "consumer"
) -> asyncio.Future[Any]:
    metadata = encode_subscription(Subscription(("t",)))
    return shard.ask(
        group,
        lambda asked: e.JoinGroup(
            asked,
            member_id,
            None,
            "c",
            "/h",
            10_000,
            30_000,
            protocol_type,
            (e.Protocol("range", metadata),),
            f"fresh{asked}",
            needs_member_id=False,
        ),
    )


def sync(shard: GroupShard, joined: e.JoinResult, assignment: bytes = b"a") -> asyncio.Future[Any]:
    member = joined.member_id
    return shard.ask(
        "g",
        lambda asked: e.SyncGroup(
            asked, member, None, joined.generation, None, None, ((member, assignment),)
        ),
    )


async def stable(shard: GroupShard) -> e.JoinResult:
    joined: e.JoinResult = await join(shard)
    assert (await sync(shard, joined)).error is NONE
    return joined


async def commit(
    shard: GroupShard, offset: int, *, sender: Committer | None = None, group: str = "g", **at: Any
) -> tuple[ErrorCode, ...]:
    wanted = [OffsetToCommit(at.get("topic", "t"), at.get("partition", 0), offset)]
    codes = shard.commit(group, sender or Committer(), wanted, version=9)
    return await codes if isinstance(codes, asyncio.Future) else codes


def fetched(shard: GroupShard, group: str = "g") -> int:
    found = shard.fetch(group, [("t", 0)], require_stable=True)
    assert not isinstance(found, ErrorCode)
    return found[0].offset


def test_an_offset_shows_when_it_is_replicated_and_outlives_the_coordinator() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        lab.partition.is_automatic = False
        committing = asyncio.ensure_future(commit(shard, 42))
        await asyncio.sleep(0.1)
        assert fetched(shard) == -1 and not committing.done()
        lab.partition.replicate()
        assert await committing == (NONE,)
        assert fetched(shard) == 42
        assert fetched(await lab.load()) == 42

    in_lab(scenario)


def test_offsets_are_settled_when_accepted_commits_are_replicated_or_lost() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert shard.settled() is None
        lab.partition.is_automatic = False
        committing = shard.commit("g", Committer(), [OffsetToCommit("t", 0, 42)], version=9)
        assert isinstance(committing, asyncio.Future)
        queued = shard.settled()
        await asyncio.sleep(0.1)
        in_flight = shard.settled()
        assert queued is not None and in_flight is not None
        assert not queued.done() and not in_flight.done()
        lab.partition.replicate()
        assert await queued is await in_flight is NONE
        assert fetched(shard) == 42 and shard.settled() is None
        assert await committing == (NONE,)
        lost = asyncio.ensure_future(commit(shard, 43))
        await asyncio.sleep(0.1)
        settled = shard.settled()
        assert settled is not None
        lab.shards.resign(0)
        assert await settled is ErrorCode.NOT_COORDINATOR
        assert await lost == (ErrorCode.NOT_COORDINATOR,)

    in_lab(scenario)


def test_partitions_are_judged_one_by_one() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        wanted = [
            OffsetToCommit("t", 3, 1),
            OffsetToCommit("t", 4, 1),
            OffsetToCommit("nope", 0, 1),
            OffsetToCommit("t", 0, 1, metadata="m" * 4097),
        ]
        codes = shard.commit("g", Committer(), wanted, version=9)
        assert isinstance(codes, asyncio.Future)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await codes == (NONE, unknown, unknown, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        assert len(lab.partition.batches) == 1

    in_lab(scenario)


def test_a_refused_write_is_told_in_the_words_of_coordinators() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        lab.partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await commit(shard, 1) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        lab.partition.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await commit(shard, 1) == (ErrorCode.NOT_COORDINATOR,)
        lab.partition.refusal = None
        lab.partition.max_batch_bytes = 80
        assert await commit(shard, 1) == (ErrorCode.INVALID_COMMIT_OFFSET_SIZE,)
        assert fetched(shard) == -1

    in_lab(scenario)


def test_a_group_is_the_same_after_a_failover() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await stable(shard)
        member = Committer(joined.member_id, None, joined.generation)
        assert await commit(shard, 7, sender=member) == (NONE,)
        again = await lab.load()
        found = again.describe("g")
        assert isinstance(found, GroupDescription)
        assert (found.state.value, found.generation, found.leader) == (
            "Stable",
            1,
            joined.member_id,
        )
        assert found.members[0].assignment == b"a"
        assert await commit(again, 8, sender=member) == (NONE,)
        wrong = Committer(joined.member_id, None, 5)
        assert await commit(again, 9, sender=wrong) == (ErrorCode.ILLEGAL_GENERATION,)
        assert fetched(again) == 8

    in_lab(scenario)


def test_members_that_stay_silent_after_a_failover_are_removed() -> None:
    async def scenario(lab: Lab) -> None:
        await stable(await lab.load())
        shard = await lab.load()
        await asyncio.sleep(9.9)
        assert isinstance(found := shard.describe("g"), GroupDescription) and found.members
        await asyncio.sleep(0.2)
        assert isinstance(found := shard.describe("g"), GroupDescription) and not found.members
        await asyncio.sleep(1)  # the record of the empty group
        again = (await lab.load()).describe("g")
        assert isinstance(again, GroupDescription) and again.generation == 2

    in_lab(scenario)


def test_a_commit_keeps_a_member_alive() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await stable(shard)
        sender = Committer(joined.member_id, None, joined.generation)
        for _ in range(4):
            await asyncio.sleep(6)
            assert await commit(shard, 1, sender=sender) == (NONE,)

    in_lab(scenario)


def test_whoever_waits_is_sent_away_when_the_coordinator_moves() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await stable(shard)
        second = join(shard)  # parked: the first member has to join again
        lab.partition.is_automatic = False
        committing = asyncio.ensure_future(
            commit(shard, 1, sender=Committer(joined.member_id, None, 1))
        )
        await asyncio.sleep(0.1)
        lab.shards.resign(0)
        assert (await second).error is ErrorCode.NOT_COORDINATOR
        assert await committing == (ErrorCode.NOT_COORDINATOR,)

    in_lab(scenario)


def test_an_assignment_that_cannot_be_written_is_given_to_nobody() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await join(shard)
        lab.partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        synced = await sync(shard, joined)
        assert (synced.error, synced.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")

    in_lab(scenario)


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert await commit(shard, 5) == (NONE,)
        shard.forget_topics(frozenset({"other"}))
        await asyncio.sleep(0.1)
        assert fetched(shard) == 5
        shard.forget_topics(frozenset({"t"}))
        await asyncio.sleep(0.1)
        assert fetched(shard) == fetched(await lab.load()) == -1

    in_lab(scenario)


def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert await commit(shard, 5) == (NONE,)
        assert shard.delete_group("none") is ErrorCode.GROUP_ID_NOT_FOUND
        await stable(shard)
        assert shard.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
        await asyncio.sleep(11)
        deleting = shard.delete_group("g")
        assert isinstance(deleting, asyncio.Future) and await deleting is NONE
        for each in (shard, await lab.load()):
            assert list(each.groups()) == [] and fetched(each) == -1

    in_lab(scenario)


def test_what_is_written_behind_the_tombstones_counts() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert await commit(shard, 5) == (NONE,)
        lab.partition.is_automatic = False
        deleting = shard.delete_group("g")
        committing = asyncio.ensure_future(commit(shard, 6))
        await asyncio.sleep(0.1)
        lab.partition.replicate()
        assert isinstance(deleting, asyncio.Future) and await deleting is NONE
        assert await committing == (NONE,)
        assert fetched(shard) == fetched(await lab.load()) == 6
        assert [one.group_id for one in (await lab.load()).groups()] == ["g"]

    in_lab(scenario)


def test_a_group_whose_tombstones_cannot_be_written_is_still_there() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert await commit(shard, 5) == (NONE,)
        lab.partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        deleting = shard.delete_group("g")
        assert isinstance(deleting, asyncio.Future)
        assert await deleting is ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = await loaded(lab.shards)
        assert again is not shard
        assert [one.group_id for one in again.groups()] == ["g"] and fetched(again) == 5

    in_lab(scenario)


def test_offsets_in_use_are_not_deleted() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        missing = shard.delete_offsets("g", [("t", 0)])
        assert missing == OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)
        joined = await stable(shard)
        assert await commit(shard, 5, sender=Committer(joined.member_id, None, 1)) == (NONE,)
        used = shard.delete_offsets("g", [("t", 0), ("t", 9)])
        assert used == OffsetsDeleted(
            NONE, (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
        await asyncio.sleep(11)
        deleted = shard.delete_offsets("g", [("t", 0)])
        assert isinstance(deleted, asyncio.Future)
        assert await deleted == OffsetsDeleted(NONE, (NONE,))
        assert fetched(shard) == -1

    in_lab(scenario)


def test_a_group_of_another_kind_keeps_its_offsets_while_it_has_members() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await join(shard, protocol_type="connect")
        await sync(shard, joined)
        assert shard.delete_offsets("g", [("t", 0)]) == OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)

    in_lab(scenario)


def sweep(shard: GroupShard) -> None:
    for _ in shard.sweep():
        pass


def test_what_nobody_used_for_a_week_is_swept_out() -> None:
    async def scenario(lab: Lab) -> None:
        day_s = 24 * 3600
        shard = await lab.load()
        assert await commit(shard, 5) == (NONE,)
        await asyncio.sleep(6.9 * day_s)
        sweep(shard)
        await asyncio.sleep(1)
        assert fetched(shard) == 5
        await asyncio.sleep(0.2 * day_s)
        sweep(shard)
        await asyncio.sleep(1)
        assert fetched(shard) == -1 and list(shard.groups()) == []
        assert list((await lab.load()).groups()) == []

    in_lab(scenario)


def test_why_a_group_rebalanced_can_be_asked() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert shard.rebalances("g") == ()
        joined = await stable(shard)
        [rebalance] = shard.rebalances("g")
        assert [str(cause) for cause in rebalance.causes] == [f"{joined.member_id} joined"]
        assert rebalance.ended_ms is not None

    in_lab(scenario)


def test_a_rebalance_is_told_of_once_and_remembered_by_who_coordinated_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await stable(shard)
        await sync(shard, joined)
        before = shard.rebalances("g")
        again = await lab.load()
        assert again.rebalances("g") == ()
        assert lab.former.of("g") == before != ()

    with caplog.at_level("INFO"):
        in_lab(scenario)
    [told] = [line for line in caplog.messages if "rebalanced" in line]
    assert re.fullmatch(r"group 'g' rebalanced to generation 1 in \d+ ms: '\S+' joined; .*", told)


def test_memories_of_former_groups_are_bounded() -> None:
    former = FormerRebalances()
    for number in range(MOST_GROUPS + 5):
        former.keep(f"g{number}", (Rebalance(number, []),))
        former.keep("often", (Rebalance(number, []),))
    assert former.of("g3") == () and former.of("g100")
    assert len(former.of("often")) == 10


def heartbeat(shard: GroupShard, epoch: int, **fields: Any) -> asyncio.Future[Any]:
    return shard.ask("g", lambda asked: ConsumerHeartbeat(asked, "m", epoch, **fields))


def test_a_group_of_the_consumer_protocol_lives_on_the_same_log() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        joined = await heartbeat(
            shard, 0, rebalance_timeout_ms=10_000, topic_names=("t",), owned=()
        )
        assert isinstance(joined, ConsumerHeartbeatResult)
        assert (joined.error, joined.member_epoch) == (NONE, 2)
        assert joined.assignment is not None
        assert joined.assignment[0].partitions == (0, 1, 2, 3)
        sender = Committer("m", None, 2)
        assert await commit(shard, 5, sender=sender) == (NONE,)
        stale = Committer("m", None, 1)
        assert await commit(shard, 6, sender=stale) == (ErrorCode.STALE_MEMBER_EPOCH,)
        again = await lab.load()
        kept = await heartbeat(again, 2)
        assert (kept.error, kept.member_epoch) == (NONE, 2)
        assert [(one.group_id, one.kind.value, one.state) for one in again.groups()] == [
            ("g", "consumer", "Stable")
        ]
        refused = again.fetch("g", None, require_stable=False, member_id="m", member_epoch=9)
        assert refused is ErrorCode.STALE_MEMBER_EPOCH
        assert fetched(again) == 5
        assert again.delete_group("g") is ErrorCode.NON_EMPTY_GROUP

    in_lab(scenario)


def test_a_member_is_told_nothing_that_the_next_coordinator_may_not_know() -> None:
    """However often it asks while the write takes too long; and all of it once that is through."""

    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        everything: dict[str, Any] = {
            "rebalance_timeout_ms": 10_000, "topic_names": ("t",), "owned": (),
        }  # fmt: skip
        lab.partition.is_automatic = False
        for _ in range(3):
            asked = await heartbeat(shard, 0, **everything)
            assert (asked.error, asked.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        lab.partition.replicate()
        told = await heartbeat(shard, 0, **everything)
        assert (told.error, told.member_epoch) == (NONE, 2)
        assert told.assignment is not None
        assert told.assignment[0].partitions == (0, 1, 2, 3)

    in_lab(scenario)


def test_a_deleted_group_of_the_consumer_protocol_is_gone_after_a_failover() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await heartbeat(shard, 0, rebalance_timeout_ms=10_000, topic_names=("t",), owned=())
        assert (await heartbeat(shard, -1)).error is NONE
        deleting = shard.delete_group("g")
        assert isinstance(deleting, asyncio.Future) and await deleting is NONE
        for each in (shard, await lab.load()):
            assert list(each.groups()) == []

    in_lab(scenario)


# --- Kafka's own log -------------------------------------------------------------------

Key = tuple[str, str, int]
_BATCH = re.compile(r"producerId: (-?\d+) .*isTransactional: (\w+) isControl: (\w+)")
_RECORD = re.compile(r"^\| offset: (\d+) .*? key: (\{.*?\}\}) payload: (.*)$")


def committed_by_the_dump(text: str) -> dict[Key, int]:
    """A plain reading of Kafka's dump: the last offset of each partition that counts."""
    committed: dict[Key, tuple[int, int]] = {}
    pending: dict[str, dict[Key, tuple[int, int]]] = {}
    producer, is_transactional = "", False
    for line in text.splitlines():
        if batch := _BATCH.search(line):
            producer, is_transactional = batch[1], batch[2] == "true"
        elif "endTxnMarker: COMMIT" in line:
            for key, (position, offset) in pending.pop(producer, {}).items():
                if committed.get(key, (-1, 0))[0] < position:
                    committed[key] = (position, offset)
        elif "endTxnMarker: ABORT" in line:
            pending.pop(producer, None)
        elif found := _RECORD.match(line):
            key_json = json.loads(found[2])
            if key_json["type"] not in ("0", "1"):
                continue
            data = key_json["data"]
            key = (data["group"], data["topic"], data["partition"])
            if not found[3].startswith("{"):
                committed.pop(key, None)
                for theirs in pending.values():
                    theirs.pop(key, None)
                continue
            offset = json.loads(found[3])["data"]["offset"]
            into = pending.setdefault(producer, {}) if is_transactional else committed
            into[key] = (int(found[1]), offset)
    return {key: offset for key, (_, offset) in committed.items()}


@pytest.mark.parametrize("folder", sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")), ids=str)
def test_kafkas_log_is_loaded_to_kafkas_groups_and_offsets(folder: Path) -> None:
    async def scenario(lab: Lab) -> None:
        lab.partition.store_log((folder / "00000000000000000000.log").read_bytes())
        shard = await lab.load()
        expected = committed_by_the_dump((folder / "dump.txt").read_text(encoding="utf-8"))
        groups = {group for group, _, _ in expected} | {one.group_id for one in shard.groups()}
        found = {
            (group, row.topic, row.partition): row.offset
            for group in groups
            for row in all_offsets(shard, group)
        }
        assert found == expected
        assert {one.group_id for one in shard.groups()} >= {group for group, _, _ in expected}

    in_lab(scenario)


def all_offsets(shard: GroupShard, group: str) -> Sequence[Fetched]:
    found = shard.fetch(group, None, require_stable=False)
    assert not isinstance(found, ErrorCode)
    return found


GROUPS = {
    "raw-classic": ("classic", "Empty"),
    "raw-static": ("classic", "Empty"),
    "raw-848-static": ("consumer", None),
    "simple": ("classic", "Empty"),
    "raw-tx-group": ("classic", "Empty"),
}
GONE = ("doomed", "raw-848")


def test_kafkas_groups_are_what_its_steps_made_of_them() -> None:
    async def scenario(lab: Lab) -> None:
        found: dict[str, tuple[str, str]] = {}
        for folder in sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")):
            lab.partition = MemoryPartition()
            lab.partition.store_log((folder / "00000000000000000000.log").read_bytes())
            for one in (await lab.load()).groups():
                found[one.group_id] = (one.kind.value, one.state)
        for group, (kind, state) in GROUPS.items():
            assert found[group][0] == kind, group
            assert state is None or found[group][1] == state, group
        assert not set(GONE) & found.keys()

    in_lab(scenario)
