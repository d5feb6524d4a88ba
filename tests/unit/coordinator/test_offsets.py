"""Committed offsets: checks, visibility, transactions, deletion and expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.append_errors import group_write_error, offset_write_error
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import ClassicGroup, GroupSettings, GroupState
from tidelog.coordinator.classic_groups import ClassicGroups
from tidelog.coordinator.commit_checks import (
    Committer,
    check_commit,
    check_transactional_commit,
)
from tidelog.coordinator.offset_expiry import expire_offsets
from tidelog.coordinator.offsets import (
    CommittedOffsets,
    Fetched,
    OffsetSettings,
    OffsetToCommit,
)
from tidelog.coordinator.records import (
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetRecord,
    OffsetValue,
    StoredMember,
    decode_record,
)
from tidelog.coordinator.subscriptions import Subscription, encode_subscription
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, ProducerId, Uuid
from tidelog.wire.batch import headers
from tidelog.wire.records import iterate

OFFSETS_TOPIC = Path(__file__).parents[2] / "data/golden/offsets-topic"
RETENTION_MS = 1000
NONE = ErrorCode.NONE
TOPIC_ID = Uuid(b"\3" * 16)


def offsets() -> CommittedOffsets:
    return CommittedOffsets(OffsetSettings(metadata_max_bytes=4, retention_ms=RETENTION_MS))


def exists(topic: str, partition: int) -> bool:
    return topic in ("t", "u") and 0 <= partition < 3


def record(
    topic: str, partition: int, offset: int, at_ms: int = 0, expire_ms: int | None = None
) -> OffsetRecord:
    value = OffsetValue(offset, -1, "", at_ms, expire_ms)
    return OffsetRecord(OffsetKey("g", topic, partition), value)


# --- commits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (OffsetToCommit("t", 0, 5), NONE),
        (OffsetToCommit("t", 0, -1), NONE),  # Kafka takes any number
        (OffsetToCommit("t", 0, -2), NONE),
        (OffsetToCommit("t", 0, 2**63 - 1), NONE),
        (OffsetToCommit("t", 0, 5, metadata="1234"), NONE),
        (OffsetToCommit("t", 0, 5, metadata="12345"), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (OffsetToCommit("t", 0, 5, metadata="äöü"), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (OffsetToCommit("t", 3, 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (OffsetToCommit("t", -1, 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (OffsetToCommit("nope", 0, 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_each_partition_is_checked_by_itself(asked: OffsetToCommit, error: ErrorCode) -> None:
    good = OffsetToCommit("u", 1, 7, 2, None, TOPIC_ID)
    plan = offsets().plan_commit(50, "g", [asked, good], exists)
    assert plan.errors == (error, NONE)
    expected = OffsetRecord(OffsetKey("g", "u", 1), OffsetValue(7, 2, "", 50, None, TOPIC_ID))
    assert plan.records[-1] == expected
    assert len(plan.records) == (2 if error is NONE else 1)


def test_a_retention_of_its_own_becomes_an_expiry() -> None:
    plan = offsets().plan_commit(50, "g", [OffsetToCommit("t", 0, 5, 2)], exists, 30)
    assert plan.records[0].value == OffsetValue(5, -1, "", 50, 80)


def test_planning_changes_nothing() -> None:
    known = offsets()
    known.plan_commit(50, "g", [OffsetToCommit("t", 0, 5)], exists)
    assert known.fetch("g", [("t", 0)], require_stable=False) == (Fetched("t", 0),)
    assert not known.has_offsets("g")


# --- who may commit ----------------------------------------------------------------------------

MEMBER = StoredMember("m", None, "c", "/h", 10, 10, b"", b"")
STATIC = StoredMember("s", "i", "c", "/h", 10, 10, b"", b"")


def stable_group(*members: StoredMember, kind: str = "consumer", at_ms: int = 0) -> ClassicGroup:
    value = GroupValue(kind, 7, "range" if members else None, None, at_ms, members)
    return ClassicGroup.load("g", value, GroupSettings(), 0)


@pytest.mark.parametrize(
    ("sender", "error"),
    [
        (Committer("m", None, 7), NONE),
        (Committer("s", "i", 7), NONE),
        (Committer("m", None, 6), ErrorCode.ILLEGAL_GENERATION),
        (Committer("m", None, 8), ErrorCode.ILLEGAL_GENERATION),
        (Committer("m", None, -1), ErrorCode.ILLEGAL_GENERATION),
        (Committer("ghost", None, 7), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("", None, 7), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("m", "i", 7), ErrorCode.FENCED_INSTANCE_ID),
        (Committer("m", "nobody", 7), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_of_a_stable_group(sender: Committer, error: ErrorCode) -> None:
    group = stable_group(MEMBER, STATIC)
    assert check_commit(group, sender, 8) is error
    assert check_transactional_commit(group, sender) is error


def test_strangers() -> None:
    stranger = Committer()
    assert check_commit(None, stranger, 8) is NONE
    assert check_commit(stable_group(), stranger, 8) is NONE
    assert check_commit(stable_group(MEMBER), stranger, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    # A producer that is nobody's member may commit to any group (KIP-447).
    assert check_transactional_commit(stable_group(MEMBER), stranger) is NONE
    assert check_transactional_commit(None, stranger) is NONE


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_a_group_that_is_not_there(version: int, error: ErrorCode) -> None:
    assert check_commit(None, Committer("m", None, 1), version) is error


def test_members_may_save_their_place_while_they_rejoin() -> None:
    group = stable_group(MEMBER, STATIC)
    group.step(0, e.LeaveGroup(1, (e.Leaver("s", "i"),)))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert check_commit(group, Committer("m", None, 7), 8) is NONE
    assert check_commit(group, Committer("s", None, 7), 8) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_counts_as_a_heartbeat() -> None:
    group = stable_group(MEMBER)
    assert group.next_deadline_ms == 10
    group.keep_alive(5, "m")
    group.keep_alive(6, "ghost")
    assert group.next_deadline_ms == 15


def test_a_dead_group_takes_no_commits() -> None:
    group = stable_group(MEMBER)
    group.step(0, e.Closed(ErrorCode.NOT_COORDINATOR))
    for sender in (Committer(), Committer("m", None, 7)):
        assert check_commit(group, sender, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = check_transactional_commit(group, sender)
        assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_of_an_empty_group_is_unknown() -> None:
    sender = Committer("m", None, 7)
    assert check_commit(stable_group(), sender, 8) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("error", "for_groups", "for_offsets"),
    [
        (NONE, 0, 0), (ErrorCode.NOT_ENOUGH_REPLICAS, 15, 15),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 15, 15), (ErrorCode.REQUEST_TIMED_OUT, 15, 15),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 15, 15), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 16, 16),
        (ErrorCode.KAFKA_STORAGE_ERROR, 16, 16), (ErrorCode.MESSAGE_TOO_LARGE, -1, 28),
        (ErrorCode.RECORD_LIST_TOO_LARGE, -1, 28), (ErrorCode.INVALID_PRODUCER_EPOCH, 47, 47),
    ],
)  # fmt: skip
def test_errors_of_writes(error: ErrorCode, for_groups: int, for_offsets: int) -> None:
    assert (group_write_error(error), offset_write_error(error)) == (for_groups, for_offsets)


# --- fetches and transactions --------------------------------------------------------------------

PRODUCER = ProducerId(9)


def test_an_offset_of_an_open_transaction_is_unstable_and_never_shown() -> None:
    known = offsets()
    known.replay(record("t", 0, 5), 1)
    known.replay(record("t", 0, 8), 2, PRODUCER)
    known.replay(record("t", 1, 3), 3, PRODUCER)
    old, unstable = Fetched("t", 0, NONE, 5), ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert known.fetch("g", [("t", 0)], require_stable=False) == (old,)
    assert known.fetch("g", [("t", 0), ("t", 1), ("t", 2)], require_stable=True) == (
        Fetched("t", 0, unstable), Fetched("t", 1, unstable), Fetched("t", 2),
    )  # fmt: skip
    assert known.fetch("g", None, require_stable=False) == (old,)
    assert [each.error for each in known.fetch("g", None, require_stable=True)] == [unstable] * 2
    known.end_transaction(PRODUCER, committed=True)
    assert [each.offset for each in known.fetch("g", None, require_stable=True)] == [8, 3]


def test_no_answer_with_an_error_has_an_offset() -> None:
    known = offsets()
    known.replay(record("t", 0, 5), 1)
    known.replay(record("t", 0, 8), 2, PRODUCER)
    (answer,) = known.fetch("g", [("t", 0)], require_stable=True)
    assert (answer.offset, answer.leader_epoch, answer.metadata) == (-1, -1, "")


def test_an_aborted_offset_leaves_the_one_before() -> None:
    known = offsets()
    known.replay(record("t", 0, 5), 1)
    known.replay(record("t", 0, 8), 2, PRODUCER)
    known.end_transaction(PRODUCER, committed=False)
    assert known.fetch("g", None, require_stable=True) == (Fetched("t", 0, NONE, 5),)


def test_a_later_plain_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    known = offsets()
    known.replay(record("t", 0, 8), 1, PRODUCER)
    known.replay(record("t", 0, 9), 2)
    known.end_transaction(PRODUCER, committed=True)
    assert known.fetch("g", None, require_stable=True) == (Fetched("t", 0, NONE, 9),)


def test_an_unknown_group_has_no_offsets() -> None:
    assert offsets().fetch("nobody", [("t", 0)], require_stable=True) == (Fetched("t", 0),)
    assert offsets().fetch("nobody", None, require_stable=True) == ()


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "txn", "commit", "abort", "delete"]),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    max_size=25,
)


@given(STEPS)
@settings(derandomize=True, max_examples=300)
def test_offsets_are_what_a_reader_of_the_whole_log_would_say(steps: list[Step]) -> None:
    known = offsets()
    for position, (kind, partition, producer) in enumerate(steps):
        match kind:
            case "plain":
                known.replay(record("t", partition, position), position)
            case "txn":
                known.replay(record("t", partition, position), position, ProducerId(producer))
            case "delete":
                known.replay(OffsetRecord(OffsetKey("g", "t", partition), None), position)
            case _:
                known.end_transaction(ProducerId(producer), committed=kind == "commit")
    for partition in (0, 1):
        (answer,) = known.fetch("g", [("t", partition)], require_stable=False)
        assert answer.offset == newest_visible(steps, partition)
        assert known.is_pending("g", ("t", partition)) == has_open(steps, partition)
    assert known.has_pending("g") == any(has_open(steps, partition) for partition in (0, 1))


class NotToBeLookedAt(dict[str, object]):
    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"{name} of another group's transaction was used")

    def __getitem__(self, group: str) -> object:
        raise AssertionError(f"{group!r} was looked for in another group's transaction")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("another group's transaction was walked")


def test_transactions_of_other_groups_cost_nothing() -> None:
    """A shard may have thousands of them open."""
    known = offsets()
    for producer in range(100, 103):
        other = OffsetRecord(OffsetKey("other", "t", 0), OffsetValue(1, -1, "", 0, None))
        known.replay(other, producer, ProducerId(producer))
        known._pending[ProducerId(producer)] = NotToBeLookedAt()  # type: ignore[assignment]
    known.replay(record("t", 0, 5), 1, PRODUCER)
    assert known.is_pending("g", ("t", 0))
    assert known.has_pending("g") and known.has_pending("other")
    assert len(known.tombstones("g")) == 1
    (answer,) = known.fetch("g", None, require_stable=True)
    assert answer.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert known.groups_of(PRODUCER) == ("g",)
    known.end_transaction(PRODUCER, committed=True)
    assert not known.has_pending("g")
    known.replay(OffsetRecord(OffsetKey("g", "t", 0), None), 2)
    assert not known.has_offsets("g")


def newest_visible(steps: list[Step], partition: int) -> int:
    found = [-1]
    for position, (kind, where, producer) in enumerate(steps):
        deleted = any(k == "delete" and w == partition for k, w, _ in steps[position:])
        if where != partition or deleted:
            continue
        if kind == "plain" or (kind == "txn" and ending(steps[position:], producer) == "commit"):
            found.append(position)
    return max(found)


def has_open(steps: list[Step], partition: int) -> bool:
    return any(
        kind == "txn" and where == partition and ending(steps[position:], producer) is None
        and not any(k == "delete" and w == partition for k, w, _ in steps[position:])
        for position, (kind, where, producer) in enumerate(steps)
    )  # fmt: skip


def ending(steps: list[Step], producer: int) -> str | None:
    ends = (kind for kind, _, who in steps if who == producer and kind in ("commit", "abort"))
    return next(ends, None)


# --- deletion and expiry -------------------------------------------------------------------------


def test_deletion_spares_what_is_subscribed_and_what_is_not_there() -> None:
    known = offsets()
    for topic in ("t", "u"):
        known.replay(record(topic, 0, 5), 1)
    places = [("t", 0), ("u", 0), ("u", 1), ("u", 9), ("nope", 0)]
    errors, records = known.plan_delete("g", places, exists, lambda topic: topic == "t")
    assert [int(error) for error in errors] == [86, 0, 0, 3, 3]
    assert records == (OffsetRecord(OffsetKey("g", "u", 0), None),)


def test_tombstones_cover_open_transactions() -> None:
    known = offsets()
    known.replay(record("t", 0, 5), 1)
    known.replay(record("u", 1, 5), 2, PRODUCER)
    assert [each.key for each in known.tombstones("g")] == [
        OffsetKey("g", "t", 0), OffsetKey("g", "u", 1),
    ]  # fmt: skip
    gone = known.tombstones_of_topic(lambda topic, _: topic == "u")
    assert [each.key for each in gone] == [OffsetKey("g", "u", 1)]
    for each in known.tombstones("g"):
        known.replay(each, 3)
    known.end_transaction(PRODUCER, committed=True)
    assert not known.has_offsets("g")


def subscribed(*topics: str, by: str = "m") -> StoredMember:
    return StoredMember(by, None, "c", "/h", 10, 10, encode_subscription(Subscription(topics)), b"")


@pytest.mark.parametrize(
    ("group", "now_ms", "expired", "whole_group"),
    [
        # Empty since 500: the clock starts there, or at a later commit.
        (stable_group(at_ms=500), 1499, "", False),
        (stable_group(at_ms=500), 1500, "t0 u0", False),
        (stable_group(at_ms=500), 1700, "t0 u0 u1", True),
        # A simple group: at the commit.
        (stable_group(kind="", at_ms=5000), 1099, "", False),
        (stable_group(kind="", at_ms=5000), 1100, "t0 u0", False),
        # Consumers at work: only topics that nobody wants.
        (stable_group(subscribed("t")), 99_999, "u0 u1", False),
        (stable_group(subscribed("t"), subscribed("u", by="n")), 99_999, "", False),
        (stable_group(subscribed("t", "u")), 99_999, "", False),
        (stable_group(subscribed("x")), 1099, "", False),
        # Something else at work, or consumers nobody understands: never.
        (stable_group(subscribed("x"), kind="connect"), 99_999, "", False),
        (stable_group(MEMBER), 99_999, "", False),
    ],
)
def test_expiry(group: ClassicGroup, now_ms: int, expired: str, whole_group: bool) -> None:
    known = offsets()
    known.replay(record("t", 0, 5, 100), 1)
    known.replay(record("u", 0, 5, 100), 2)
    known.replay(record("u", 1, 5, 700), 3)
    found = expire_offsets(now_ms, group, known)
    assert " ".join(f"{each.key.topic}{each.key.partition}" for each in found.offsets) == expired
    assert found.group == (GroupRecord(GroupKey("g"), None) if whole_group else None)


def test_an_offset_about_to_be_replaced_stays_and_so_does_its_group() -> None:
    known = offsets()
    known.replay(record("t", 0, 5), 1)
    known.replay(record("t", 0, 6), 2, PRODUCER)
    found = expire_offsets(99_999, stable_group(), known)
    assert (found.offsets, found.group) == ((), None)


def test_an_expiry_of_its_own_counts_only_where_offsets_expire_at_all() -> None:
    known = offsets()
    known.replay(record("t", 0, 5, 0, expire_ms=50), 1)
    assert len(expire_offsets(50, stable_group(), known).offsets) == 1
    assert expire_offsets(49, stable_group(), known).offsets == ()
    assert expire_offsets(50, stable_group(subscribed("t")), known).offsets == ()


def test_expiry_leaves_no_offset_of_an_active_group_after_a_reload() -> None:
    """KAFKA-8069: offsets old by their commit, in a group that became Empty just now."""
    known = offsets()
    known.replay(record("t", 0, 5, 0), 1)
    assert expire_offsets(50_500, stable_group(at_ms=50_000), known).offsets == ()


# --- Kafka's own topic ---------------------------------------------------------------------------


def load_golden() -> tuple[ClassicGroups, CommittedOffsets]:
    groups, known = ClassicGroups(GroupSettings()), offsets()
    for folder in sorted(OFFSETS_TOPIC.glob("__consumer_offsets-*")):
        data = (folder / "00000000000000000000.log").read_bytes()
        for position, header in headers(data):
            producer = ProducerId(header.producer_id) if header.is_transactional else NO_PRODUCER_ID
            for each in iterate(data, position):
                assert each.key is not None
                if header.is_control:
                    known.end_transaction(producer, committed=each.key[3] == 1)
                    continue
                decoded = decode_record(each.key, each.value)
                if isinstance(decoded, OffsetRecord):
                    known.replay(decoded, each.offset, producer)
                elif isinstance(decoded, GroupRecord):
                    groups.load(decoded, 0)
    return groups, known


def test_kafkas_topic_is_loaded_to_the_groups_and_offsets_it_had() -> None:
    groups, known = load_golden()
    shown = {
        (name, topic, partition): (value.offset, value.metadata)
        for name in known.groups()
        for (topic, partition), value in known.committed(name)
    }
    assert shown == {
        ("simple", "w-t", 0): (9, ""), ("simple", "w-t", 1): (9, ""),
        ("raw-classic", "w-t", 0): (7, "from member"),
        ("raw-tx-group", "w-t", 0): (5, "txn v5"),
        ("java-tx-g", "w-in", 0): (1, ""), ("cf-tx-g", "w-in", 0): (1, ""),
        ("cf-g-classic", "w-t", 0): (2, "md\0"), ("cf-g-classic", "w-t", 1): (2, "md\0"),
        ("cf-g-consumer", "w-t", 0): (2, "md\0"), ("cf-g-consumer", "w-t", 1): (2, "md\0"),
    }  # fmt: skip
    states = {group.group_id: (group.state.value, group.generation) for group in groups}
    assert states["cf-g-classic"] == ("Empty", 4)
    assert states["raw-static"] == ("Empty", 2)
    assert "doomed" not in states and "java-g-classic" not in states
    assert {state for state, _ in states.values()} == {"Empty"}
