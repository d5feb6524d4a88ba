"""Forwarding: what is done when, and what is refused before it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import context_of, directory, node

from tidelog.controller.quorum.errors import RequestRefused
from tidelog.controller.raft.effects import RejectReason
from tidelog.controller.raft.model import ReplicaKey
from tidelog.controller.service.forwarding import MAX_REQUEST_BYTES
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex
from tidelog.v1 import controller_pb2 as pb
from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32, to_kio_uuid
from tidelog.wire.protocol.responses import decode_response

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk

AtTheDesk = Callable[..., Any]


def body(key: int, version: int, **values: Any) -> bytes:
    return kio_bytes(APIS[key].load_request_type(version)(**values))


def struct(key: int, version: int, kind: str, /, **values: Any) -> Any:
    module = __import__(APIS[key].load_request_type(version).__module__, fromlist=[kind])
    return getattr(module, kind)(**values)


def create_topic_body(name: str, factor: int = 1, partitions: int = 1) -> bytes:
    topic = struct(
        19,
        7,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=(),
    )
    return body(19, 7, topics=(topic,), timeout=duration_i32(1000), validate_only=False)


async def forward(desk: Desk, key: int, version: int, data: bytes) -> Any:
    message = pb.ForwardRequest(api_key=key, api_version=version, request=data)
    answer = await desk.handlers.forward(context_of(11), message)
    assert answer.error_code == 0, answer
    return decode_response(key, version, memoryview(answer.response).toreadonly())


def test_a_topic_is_answered_only_after_its_commit(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        desk.log.hold()
        waiting = asyncio.ensure_future(forward(desk, 19, 7, create_topic_body("t")))
        await asyncio.sleep(5)
        assert not waiting.done()
        assert desk.controller.committed.topics.named("t") is None
        desk.log.release()
        [topic] = (await waiting).topics
        assert int(topic.error_code) == 0
        assert desk.controller.committed.topics.named("t") is not None

    at_the_desk(scenario)


def test_two_requests_for_one_name_make_one_topic(at_the_desk: AtTheDesk) -> None:
    """Also while the first one is not committed."""

    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        desk.log.hold()
        asked = [forward(desk, 19, 7, create_topic_body("t")) for _ in range(2)]
        both = asyncio.gather(*asked)
        await asyncio.sleep(1)
        desk.log.release()
        codes = sorted(int(answer.topics[0].error_code) for answer in await both)
        assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS]

    at_the_desk(scenario)


def test_leadership_lost_with_a_request_pending(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        desk.log.hold()
        message = pb.ForwardRequest(api_key=19, api_version=7, request=create_topic_body("t"))
        waiting = asyncio.ensure_future(desk.handlers.forward(context_of(11), message))
        await asyncio.sleep(1)
        desk.log.depose()
        answer = await waiting
        assert (answer.error_code, answer.response) == (ErrorCode.NOT_CONTROLLER, b"")

    at_the_desk(scenario)


@pytest.mark.parametrize(
    ("key", "version", "data", "code"),
    [
        (19, 99, b"", ErrorCode.UNSUPPORTED_VERSION),
        (19, 1, b"", ErrorCode.UNSUPPORTED_VERSION),
        (0, 9, b"", ErrorCode.UNSUPPORTED_VERSION),
        (12345, 0, b"", ErrorCode.UNSUPPORTED_VERSION),
        (19, 7, b"", ErrorCode.INVALID_REQUEST),
        (19, 7, b"\xff" * 100, ErrorCode.INVALID_REQUEST),
        (64, 0, b"\x01", ErrorCode.INVALID_REQUEST),
        (19, 7, bytes(MAX_REQUEST_BYTES + 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_not_a_request_is_refused(
    at_the_desk: AtTheDesk, key: int, version: int, data: bytes, code: ErrorCode
) -> None:
    async def scenario(desk: Desk) -> None:
        message = pb.ForwardRequest(api_key=key, api_version=version, request=data)
        answer = await desk.handlers.forward(context_of(11), message)
        assert (answer.error_code, answer.response) == (code, b"")

    at_the_desk(scenario)


def test_a_partition_is_reassigned_listed_and_cancelled(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        await forward(desk, 19, 7, create_topic_body("t"))
        await desk.add_broker(12)

        async def reassign(replicas: tuple[int, ...] | None) -> int:
            one = struct(45, 0, "ReassignablePartition", partition_index=0, replicas=replicas)
            topic = struct(45, 0, "ReassignableTopic", name="t", partitions=(one,))
            data = body(45, 0, timeout=duration_i32(1000), topics=(topic,))
            answer = await forward(desk, 45, 0, data)
            return int(answer.responses[0].partitions[0].error_code)

        async def ongoing() -> list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
            data = body(46, 0, timeout=duration_i32(1000), topics=None)
            answer = await forward(desk, 46, 0, data)
            return [
                (topic.name, one.partition_index, one.adding_replicas, one.removing_replicas)
                for topic in answer.topics
                for one in topic.partitions
            ]

        assert await ongoing() == []
        assert await reassign((12,)) == 0
        assert await ongoing() == [("t", 0, (12,), (11,))]
        assert await reassign(None) == 0
        assert await ongoing() == []
        assert await reassign(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    at_the_desk(scenario)


def test_partitions_are_added_and_leaders_elected(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        await forward(desk, 19, 7, create_topic_body("t"))
        more = struct(37, 3, "CreatePartitionsTopic", name="t", count=3, assignments=None)
        data = body(37, 3, topics=(more,), timeout=duration_i32(1000), validate_only=False)
        assert int((await forward(desk, 37, 3, data)).results[0].error_code) == 0
        topic = desk.controller.committed.topics.named("t")
        assert topic is not None and sorted(topic.partitions) == [0, 1, 2]
        wanted = struct(43, 2, "TopicPartitions", topic="t", partitions=(2,))
        data = body(43, 2, election_type=0, topic_partitions=(wanted,), timeout=duration_i32(1000))
        answer = await forward(desk, 43, 2, data)
        [result] = answer.replica_election_results[0].partition_result
        assert int(result.error_code) == ErrorCode.ELECTION_NOT_NEEDED
        assert topic.partitions[PartitionIndex(2)].leader == node(11)

    at_the_desk(scenario)


def test_voters_are_changed_for_clients(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        voter = {"voter_id": 4, "voter_directory_id": to_kio_uuid(directory(4))}
        add = body(80, 0, cluster_id="", listeners=(), timeout=duration_i32(1000), **voter)
        assert int((await forward(desk, 80, 0, add)).error_code) == ErrorCode.NONE
        remove = body(81, 0, cluster_id=None, **voter)
        assert int((await forward(desk, 81, 0, remove)).error_code) == ErrorCode.NONE
        key = ReplicaKey(node(4), directory(4))
        assert desk.member.changes == [("add", key), ("remove", key)]

    at_the_desk(scenario)


def test_a_change_of_voters_that_is_refused(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        async def refuse(voter: ReplicaKey) -> None:
            raise RequestRefused(RejectReason.LAST_VOTER, "the last one stays")

        desk.member.remove_voter = refuse  # type: ignore[method-assign]
        remove = body(81, 0, cluster_id=None, voter_id=4, voter_directory_id=None)
        answer = await forward(desk, 81, 0, remove)
        assert int(answer.error_code) == ErrorCode.INVALID_REQUEST
        assert "the last one stays" in answer.error_message

    at_the_desk(scenario)
