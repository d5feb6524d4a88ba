"""Who may commit and fetch in a group of the consumer protocol, and when its offsets expire."""

from __future__ import annotations

import pytest

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, Effect
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.consumer_commit_checks import (
    check_consumer_commit,
    check_consumer_fetch,
    check_consumer_transactional_commit,
)
from tidelog.coordinator.consumer_group import ConsumerGroup
from tidelog.coordinator.consumer_offset_expiry import expire_consumer_offsets
from tidelog.coordinator.groups import GroupKind, Groups, ListedGroup, Request
from tidelog.coordinator.offsets import CommittedOffsets, OffsetSettings
from tidelog.coordinator.records import OffsetKey, OffsetRecord, OffsetValue
from tidelog.coordinator.subscriptions import Subscription, encode_subscription
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid

T = Uuid(b"t" * 16)
TOPICS = KnownTopics([TopicInfo(T, "t", 4)], 1)
OK = ErrorCode.NONE
STALE = ErrorCode.STALE_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


class Fixture:
    """``a`` (epoch 3, had 0 and 1 since 2), ``b`` (epoch 3, got 2 and 3 at 3), ``x`` is classic."""

    def __init__(self, *, classic: bool = False) -> None:
        context = GroupContext(ConsumerGroupSettings(assignment_interval_ms=0), TOPICS)
        self.groups = Groups.empty(GroupSettings(), context)
        self.join("a")
        if classic:
            metadata = encode_subscription(Subscription(("t",)))
            protocols = (e.Protocol("range", metadata),)
            self.send(
                e.JoinGroup(
                    1, "", None, "x", "/h", 10_000, 20_000, "consumer", protocols, "1",
                    needs_member_id=False,
                )
            )  # fmt: skip
        else:
            self.join("b")
        self.beat("a", 2, (0, 1))
        if not classic:
            self.beat("b", 3, ())

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        return group

    def join(self, who: str) -> None:
        beat = ConsumerHeartbeat(1, who, 0, None, None, 20_000, ("t",), None, None, ())
        self.send(beat)

    def beat(self, who: str, epoch: int, owned: tuple[int, ...]) -> None:
        self.send(ConsumerHeartbeat(1, who, epoch, owned=((T, owned),)))

    def send(self, request: Request) -> None:
        effects: list[Effect] = self.groups.handle(0, "g", request)
        for effect in effects:
            if isinstance(effect, e.Append):
                self.groups.append_finished(0, "g", effect.write_id, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("member", "epoch", "version", "partitions", "error"),
    [
        ("a", 3, 9, [0], OK),
        ("a", 3, 9, [3], OK),  # with its epoch nobody asks what it has
        ("a", 2, 9, [0, 1], OK),  # it has had them since then
        ("a", 2, 9, [0, 2], STALE),  # that one is not its own
        ("b", 2, 9, [2], STALE),  # it did not have it then
        ("a", 1, 9, [0], STALE),
        ("a", 4, 9, [0], STALE),
        ("a", 3, 8, [0], ErrorCode.UNSUPPORTED_VERSION),
        ("c", 3, 9, [0], UNKNOWN),
        ("", -1, 9, [0], UNKNOWN),
    ],
)
def test_commits(
    member: str, epoch: int, version: int, partitions: list[int], error: ErrorCode
) -> None:
    group = Fixture().group
    places = [("t", index) for index in partitions]
    assert check_consumer_commit(group, Committer(member, None, epoch), version, places) is error
    if version >= 9 and member:
        who = Committer(member, None, epoch)
        assert check_consumer_transactional_commit(group, who, places) is error


def test_a_classic_member_hears_of_generations() -> None:
    group = Fixture(classic=True).group
    for generation, version, error in [(3, 8, OK), (2, 8, ErrorCode.ILLEGAL_GENERATION)]:
        who = Committer("x-1", None, generation)
        assert check_consumer_commit(group, who, version, [("t", 0)]) is error
    assert check_consumer_fetch(group, "x-1", 2) is ErrorCode.ILLEGAL_GENERATION


def test_an_empty_group_takes_commits_of_anybody_without_an_epoch() -> None:
    fixture = Fixture()
    assert check_consumer_transactional_commit(fixture.group, Committer(), []) is OK
    for who in "ab":
        fixture.send(ConsumerHeartbeat(1, who, -1))
    assert check_consumer_commit(fixture.group, Committer(), 9, [("t", 0)]) is OK
    assert check_consumer_commit(fixture.group, Committer("a", None, 3), 9, []) is UNKNOWN
    fixture.group.step(0, e.Closed(ErrorCode.NOT_COORDINATOR))
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert check_consumer_commit(fixture.group, Committer(), 9, []) is gone
    assert check_consumer_transactional_commit(fixture.group, Committer(), []) is gone
    assert check_consumer_fetch(fixture.group, None, -1) is gone


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [("a", 3, OK), ("a", 2, STALE), ("a", 4, STALE), ("c", 3, UNKNOWN), ("", 0, UNKNOWN)],
)
def test_fetches(member: str, epoch: int, error: ErrorCode) -> None:
    group = Fixture().group
    assert check_consumer_fetch(group, member, epoch) is error
    assert check_consumer_fetch(group, None, -1) is OK


def offset(topic: str, commit_ms: int, expire_ms: int | None = None) -> OffsetRecord:
    return OffsetRecord(OffsetKey("g", topic, 0), OffsetValue(1, -1, "", commit_ms, expire_ms))


def test_offsets_of_topics_nobody_subscribes_to_expire() -> None:
    fixture = Fixture()
    offsets = CommittedOffsets(OffsetSettings(retention_ms=1_000))
    kept, old, young = offset("t", 0), offset("u", 0), offset("v", 500)
    for position, record in enumerate((kept, old, young, offset("w", 0, expire_ms=5_000))):
        offsets.replay(record, position)
    assert expire_consumer_offsets(999, fixture.group, offsets).offsets == ()
    found = expire_consumer_offsets(1_000, fixture.group, offsets)
    assert [each.key.topic for each in found.offsets] == ["u"]
    assert not found.is_abandoned
    for who in "ab":
        fixture.send(ConsumerHeartbeat(1, who, -1))
    found = expire_consumer_offsets(5_000, fixture.group, offsets)
    assert [each.key.topic for each in found.offsets] == ["t", "u", "v", "w"]
    assert found.is_abandoned


def test_lists_and_deletions_know_both_kinds() -> None:
    fixture = Fixture()
    fixture.groups.classic.ensure("simple")
    assert list(fixture.groups.listing()) == [
        ListedGroup("simple", "", "Empty", GroupKind.CLASSIC),
        ListedGroup("g", "consumer", "Stable", GroupKind.CONSUMER),
    ]
    assert fixture.groups.check_deletable("g") is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(ValueError, match="it stays"):
        fixture.groups.delete(0, "g")
    for who in "ab":
        fixture.send(ConsumerHeartbeat(1, who, -1))
    records, effects = fixture.groups.delete(0, "g")
    assert [encoded.value for encoded in records] == [None] * 3 and effects == []
    assert fixture.groups.check_deletable("g") is ErrorCode.GROUP_ID_NOT_FOUND
    fixture.groups.delete(0, "simple")
    assert len(fixture.groups) == 0


def test_causes_are_kept_for_explanations() -> None:
    fixture = Fixture()
    first, second = fixture.group.rebalances
    assert [str(cause) for cause in second.causes] == ["b joined"]
    assert (first.generation, second.generation, second.last_to_join) == (2, 3, "b")
    assert second.ended_ms == 0
