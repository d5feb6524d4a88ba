"""Logs come and go with metadata: topics deleted and made again, moves, strays, directories."""

from __future__ import annotations

import asyncio

import pytest
from replica_lab import Lab, batch, in_lab

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset, TopicId, Uuid
from tidelog.replication.housekeeping import Housekeeping


def names(lab: Lab, node: int, number: int = 0) -> list[str]:
    listed = lab.nodes[node].disk.list_dir(f"/data{number}")
    return [name for name in listed if ("-" in name and "." in name) or name.endswith("-0")]


def test_a_deleted_topic_goes_after_its_delay() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), file_delete_delay_ms="1000")
        partition = lab.nodes[1].partition(ref)
        await lab.produce(ref, "a")
        lab.network.cut(1, 2)
        waiting = partition.append(batch("b"), acks=-1, timeout_ms=60_000)
        lab.controller.delete("t")
        await lab.until(lambda: ref not in lab.nodes[1].replicas.partitions)
        assert (await waiting).code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert lab.nodes[1].replicas.lookup("t", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await asyncio.sleep(0.1)
        assert [name.endswith("-delete") for name in names(lab, 1)] == [True]
        await asyncio.sleep(8)
        assert names(lab, 1) == []

    in_lab(script)


def test_a_topic_made_again_is_another_topic() -> None:
    """Hazard 9, and a flush of the old log that is under way when its directory goes."""

    async def script(lab: Lab) -> None:
        for round_ in range(5):
            ref = await lab.create("t", (1, 2, 3))
            assert (await lab.produce(ref, f"v{round_}")).base_offset == 0
            lab.nodes[1].partition(ref).append(batch("busy"), acks=1, timeout_ms=100)
            await asyncio.sleep(0.001 * round_)
            lab.controller.delete("t")
        ref = await lab.create("t", (1, 2, 3))
        assert (await lab.produce(ref, "last")).base_offset == 0
        assert all(not node.failures for node in lab.nodes.values())

    in_lab(script)


def test_a_log_is_not_moved_from_under_its_flush() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1,), min_insync_replicas="1")
        node = lab.nodes[1]
        node.partition(ref).append(batch("first, with a new file"), acks=1, timeout_ms=100)
        lab.controller.delete("t")
        node.see_metadata()
        await asyncio.sleep(1)
        assert not node.failures
        ref = await lab.create("t", (1,), min_insync_replicas="1")
        assert (await lab.produce(ref, "a")).base_offset == 0
        assert not node.failures

    in_lab(script)


def test_a_topic_is_made_again_while_its_first_log_is_still_made() -> None:
    async def script(lab: Lab) -> None:
        for _ in range(3):
            lab.controller.create("t", (1, 2, 3))
            for node in lab.nodes.values():
                node.see_metadata()
            lab.controller.delete("t")
            for node in lab.nodes.values():
                node.see_metadata()
        ref = await lab.create("t", (1, 2, 3))
        assert (await lab.produce(ref, "a")).base_offset == 0
        await lab.equal(ref)
        for node in lab.nodes.values():
            await node.replicas.settled()
            assert node.directories[0].topic_id(node.partition(ref).log.tp) == ref.topic_id

    in_lab(script)


def test_a_topic_made_again_while_a_node_was_away() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "old")
        await lab.equal(ref)
        await lab.nodes[3].stop()
        lab.controller.fence(3)
        lab.controller.delete("t")
        ref = lab.controller.create("t", (1, 2, 3))
        await lab.until(lambda: ref in lab.nodes[1].replicas.partitions)
        await lab.nodes[3].start(previous_epoch=lab.nodes[3].epoch)
        await lab.in_sync(ref, 3)
        await lab.produce(ref, "new")
        assert lab.nodes[3].values(ref) == ["new"]
        assert any(name.endswith("-stray") for name in names(lab, 3))  # kept, to be safe

    in_lab(script)


def test_a_partition_moves_to_a_new_broker() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        for i in range(30):
            await lab.produce(ref, f"v{i}")
        await lab.nodes[1].partition(ref).delete_records(Offset(10), timeout_ms=1000)
        lab.controller.reassign("t", 0, 1, 2, 4)
        await lab.until(lambda: set(lab.controller.state(ref).isr) == {1, 2, 4})
        assert lab.controller.state(ref).replicas == (1, 2, 4)
        await lab.until(lambda: ref not in lab.nodes[3].replicas.partitions)
        assert lab.nodes[3].replicas.lookup("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await lab.produce(ref, "end")
        assert lab.nodes[4].values(ref) == [*(f"v{i}" for i in range(10, 30)), "end"]
        assert lab.nodes[4].partition(ref).log.log_start == 10

    in_lab(script, nodes=4)


@pytest.mark.parametrize(
    ("on_leader", "on_follower", "least_s", "most_s"),
    [("", "", 0, 2), ("0:4", "", 5, 60), ("", "0:4", 5, 60)],
)
def test_a_reassignment_is_throttled(
    on_leader: str, on_follower: str, least_s: float, most_s: float
) -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create(
            "t", (1, 2, 3), leader_replication_throttled_replicas=on_leader,
            follower_replication_throttled_replicas=on_follower,
        )  # fmt: skip
        for _ in range(30):
            await lab.produce(ref, "x" * 100_000)
        loop = asyncio.get_running_loop()
        before = loop.time()
        lab.controller.reassign("t", 0, 1, 2, 4)
        await lab.until(lambda: 4 in lab.controller.state(ref).isr, timeout_s=120)
        assert least_s < loop.time() - before < most_s
        await lab.produce(ref, "in sync, so not throttled")

    in_lab(
        script,
        nodes=4,
        leader_replication_throttled_rate="100000",
        follower_replication_throttled_rate="100000",
    )


def test_logs_are_spread_over_directories() -> None:
    async def script(lab: Lab) -> None:
        await lab.create("t", *[(1, 2, 3)] * 6)
        await lab.nodes[1].replicas.settled()
        assert [len(directory.logs) for directory in lab.nodes[1].directories] == [3, 3]
        await asyncio.sleep(0.5)
        state = lab.controller.state(lab.controller.ref("t", 3))
        assert state.directory_of(lab.nodes[1].id) in {
            directory.directory_id for directory in lab.nodes[1].directories
        }

    in_lab(script, dirs=2)


def test_one_failed_directory_leaves_the_others_serving() -> None:
    async def script(lab: Lab) -> None:
        await lab.create("t", (1, 2, 3), (1, 2, 3))
        await lab.until(lambda: len(lab.nodes[1].replicas.partitions) == 2)
        await asyncio.sleep(0.5)
        lab.nodes[1].disk.faults.fail("sync", "/data1", times=None)
        refs = [lab.controller.ref("t", i) for i in (0, 1)]
        broken = [ref for ref in refs if "/data1" in lab.nodes[1].partition(ref).log.directory]
        [sound] = [ref for ref in refs if ref not in broken]
        failed = await lab.produce(broken[0], "a", acks=-1)
        assert failed.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await lab.produce(sound, "a")).code is ErrorCode.NONE
        assert lab.nodes[1].partition(sound).leader is not None
        await lab.until(lambda: lab.leader(broken[0]).id != 1)
        await lab.nodes[1].kill()

    in_lab(script, dirs=2)


def test_a_partition_that_does_not_say_whose_it_is_takes_its_directory_offline() -> None:
    """It may hold what others count on, so it must neither be used nor made anew."""

    async def script(lab: Lab) -> None:
        refs = [await lab.create(name, (1, 2, 3)) for name in ("t", "u")]
        for ref in refs:
            await lab.produce(ref, "a")
        held = [lab.nodes[1].partition(ref).log.directory for ref in refs]
        await lab.nodes[1].stop()
        lab.controller.fence(1)
        file = lab.nodes[1].disk.open(f"{held[0]}/partition.metadata")
        file.truncate(11)
        file.close()
        await lab.nodes[1].start(previous_epoch=lab.nodes[1].epoch)
        await lab.in_sync(refs[1], 3)
        keeper = lab.nodes[1].replicas.keeper
        broken = [one for one in keeper.directories.values() if one.failure is not None]
        assert [held[0].startswith(one.path) for one in broken] == [True]
        assert "partition.metadata" in str(broken[0].failure)
        await lab.nodes[1].kill()

    in_lab(script, dirs=2)


def test_what_metadata_does_not_explain_is_kept() -> None:
    """Hazard 15: a topic id the cluster does not know, and one that is assigned to others."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        moved = await lab.create("moved", (1, 2))
        await lab.produce(ref, "a")
        await lab.nodes[1].stop()
        lab.controller.fence(1)
        lab.controller.reassign("moved", 0, 2, 3)
        await lab.until(lambda: lab.controller.state(moved).replicas == (2, 3))
        disk = lab.nodes[1].disk
        disk.make_dirs("/data0/orphan-0")
        other = TopicId(Uuid(bytes(15) + b"\1"))
        text = f"version: 0\ntopic_id: {other}"
        file = disk.open("/data0/orphan-0/partition.metadata", create=True)
        file.pwrite(text.encode(), 0)
        file.close()
        await lab.nodes[1].start(previous_epoch=lab.nodes[1].epoch)
        await lab.in_sync(ref, 3)
        left = names(lab, 1)
        assert any(name.startswith("orphan-0.") and name.endswith("-stray") for name in left)
        assert any(name.startswith("moved-0.") and name.endswith("-delete") for name in left)
        assert "t-0" in left
        assert lab.nodes[1].values(ref) == ["a"]

    in_lab(script)


def test_nothing_is_judged_by_metadata_older_than_the_registration() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        node = lab.nodes[1]
        await node.stop()
        lab.controller.fence(1)
        lab.metadata_delay_ms = 10_000
        await node.start(previous_epoch=node.epoch, from_snapshot=False)
        # An image from before the topic was made reaches the node first.
        for delta in lab.controller.deltas[:4]:
            node.replicas.apply(delta)
        node.seen = 4
        assert "t-0" in names(lab, 1)
        while node.seen < len(lab.controller.deltas):
            node.replicas.apply(lab.controller.deltas[node.seen])
            node.seen += 1
        assert names(lab, 1) == ["t-0"]
        assert node.values(ref) == ["a"]

    in_lab(script)


def test_old_segments_go_on_every_replica() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create(
            "t", (1, 2, 3), segment_bytes="1048576", retention_bytes="1048576",
            file_delete_delay_ms="1000",
        )  # fmt: skip
        for _ in range(40):
            await lab.produce(ref, "x" * 100_000)
        await lab.equal(ref)
        for node in lab.nodes.values():
            await Housekeeping(node.replicas).apply_retention()
        starts = {node.partition(ref).log.log_start for node in lab.nodes.values()}
        assert len(starts) == 1 and 0 not in starts
        await asyncio.sleep(10)
        listed = lab.nodes[1].disk.list_dir("/data0/t-0")
        assert not [name for name in listed if name.endswith(".deleted")]

    in_lab(script)


def test_files_are_unlinked_beside_the_loop() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create(
            "t", (1,), min_insync_replicas="1", segment_bytes="1048576",
            retention_bytes="1048576", file_delete_delay_ms="0",
        )  # fmt: skip
        for _ in range(40):
            await lab.produce(ref, "x" * 100_000)

        def doomed() -> int:
            listed = lab.nodes[1].disk.list_dir("/data0/t-0")
            return sum(name.endswith(".deleted") for name in listed)

        housekeeping = Housekeeping(lab.nodes[1].replicas)
        await housekeeping.apply_retention()
        before = doomed()
        lab.nodes[1].disk.faults.stalled = True
        removing = asyncio.create_task(housekeeping.unlink_due())
        await asyncio.sleep(1)
        assert doomed() == before > 0
        lab.nodes[1].disk.faults.stalled = False
        await removing
        assert doomed() == 0

    in_lab(script)


def test_checkpoints_bring_the_watermark_back() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a", "b")
        await lab.equal(ref)
        await asyncio.sleep(6)  # replica.high.watermark.checkpoint.interval.ms is 5 s
        await Housekeeping(lab.nodes[2].replicas).write_recovery_points()
        assert not lab.nodes[2].partition(ref).log.epochs_are_dirty
        await lab.nodes[2].kill(power_loss=True)
        lab.nodes[2].lab.network.cut(1, 2)
        await lab.nodes[2].start()
        await lab.until(lambda: ref in lab.nodes[2].replicas.partitions)
        log = lab.nodes[2].partition(ref).log
        assert (log.high_watermark, log.recovery_point) == (2, 2)

    in_lab(script)


def test_nearly_full_means_no_produce() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        disk = lab.nodes[1].disk
        disk.faults.capacity_bytes = disk.used_bytes + (32 << 20)
        await asyncio.sleep(11)
        assert (await lab.produce(ref, "a")).code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.faults.capacity_bytes = None
        await asyncio.sleep(11)
        assert (await lab.produce(ref, "a")).code is ErrorCode.NONE

    in_lab(script)


def test_page_cache_durability_flushes_by_count_and_time() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create(
            "t", (1, 2, 3), flush_policy="page-cache", flush_messages="3", flush_ms="4000"
        )
        log = lab.nodes[1].partition(ref).log
        await lab.produce(ref, "a")
        assert (log.flushed_end, log.recovery_point) == (1, 0)
        await lab.produce(ref, "b")
        await lab.produce(ref, "c")
        await asyncio.sleep(0.1)
        assert log.recovery_point == 3
        await lab.produce(ref, "d")
        await asyncio.sleep(6)
        assert log.recovery_point == 4

    in_lab(script)


def test_idle_partitions_cost_no_messages() -> None:
    async def script(lab: Lab) -> None:
        await lab.create("t", *[(1, 2, 3)] * 60)
        await lab.until(
            lambda: all(len(node.replicas.partitions) == 60 for node in lab.nodes.values())
        )
        await asyncio.sleep(5)
        before = lab.network.messages
        await asyncio.sleep(10)
        # One leader (of all), two followers, a sign of life each way every 500 ms.
        assert lab.network.messages - before <= 2 * 2 * 2 * 10 + 4

    in_lab(script)


def test_an_unknown_partition_is_named_as_such() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2))
        replicas = lab.nodes[3].replicas
        await lab.until(lambda: "t" in replicas.image.topics.by_name)
        assert replicas.lookup("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert replicas.lookup("t", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert replicas.lookup("u", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        stranger = PartitionRef(TopicId(Uuid(b"\1" * 16)), ref.partition)
        assert replicas.lookup_ref(stranger) is ErrorCode.UNKNOWN_TOPIC_ID

    in_lab(script)
