"""The cluster behind the handlers: what the controller client's outcomes mean to them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tidelog.broker.context import ControllerRefused, QuorumMember
from tidelog.broker.controllers import ControllerCluster
from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import ControllerClient, NotRegistered
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError
from tidelog.controller.decisions.producer_ids import ProducerIdBlock
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, ProducerId, TimestampMs, Uuid
from tidelog.kernel.peers import PeerRefused
from tidelog.v1 import common_pb2 as common
from tidelog.v1 import controller_pb2 as pb

REQUEST = ForwardedRequest(19, 7, b"body")
DIRECTORY = DirectoryId(Uuid(b"d" * 16))


class ScriptedClient:
    """A ``ControllerClient`` that answers, or raises, what it was made with."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.timeouts_ms: list[float] = []
        self.has_caught_up = False

    async def catch_up(self, *, within_ms: float) -> None:
        await asyncio.sleep(0)
        self.has_caught_up = True

    async def answer(self, timeout_ms: float) -> Any:
        self.timeouts_ms.append(timeout_ms)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def forward(self, request: ForwardedRequest, *, timeout_ms: float) -> Any:
        assert request is REQUEST
        return await self.answer(timeout_ms)

    async def allocate_producer_ids(self, *, timeout_ms: float) -> Any:
        return await self.answer(timeout_ms)

    async def describe_quorum(self, *, timeout_ms: float) -> Any:
        return await self.answer(timeout_ms)


def cluster_of(outcome: Any) -> tuple[ControllerCluster, ScriptedClient]:
    client = ScriptedClient(outcome)
    return ControllerCluster(cast(ControllerClient, client)), client


def test_answers_are_passed_on_within_the_time() -> None:
    async def scenario() -> None:
        cluster, client = cluster_of(b"answer")
        assert await cluster.forward(REQUEST, timeout_ms=5) == b"answer"
        assert client.timeouts_ms == [5]
        assert client.has_caught_up, "who asks next would not be shown what was changed"
        cluster, _ = cluster_of(ProducerIdBlock(NO_ERROR, ProducerId(3000), 1000))
        assert await cluster.allocate_producer_ids(timeout_ms=5) == range(3000, 4000)

    asyncio.run(scenario())


REFUSALS = [
    (ControllerUnavailable("nobody"), ErrorCode.REQUEST_TIMED_OUT, "nobody"),
    (PeerRefused("INCONSISTENT_CLUSTER_ID", "other"), ErrorCode.INCONSISTENT_CLUSTER_ID, "other"),
    (PeerRefused("ODD", "words"), ErrorCode.UNKNOWN_SERVER_ERROR, "ODD: words"),
]


@pytest.mark.parametrize(("outcome", "code", "message"), REFUSALS)
@pytest.mark.parametrize("call", ["forward", "allocate", "quorum"])
def test_no_answer_is_a_refusal(
    call: str, outcome: Exception, code: ErrorCode, message: str
) -> None:
    assert refusal(call, outcome) == (code, message)


@pytest.mark.parametrize(
    ("call", "outcome", "code", "message"),
    [
        ("forward", ApiError(ErrorCode.UNSUPPORTED_VERSION, "no"), 35, "no"),
        ("allocate", ProducerIdBlock(ApiError(ErrorCode.STALE_BROKER_EPOCH, "old")), 77, "old"),
        ("allocate", NotRegistered("not yet"), 102, "not yet"),
        ("quorum", pb.DescribeQuorumResponse(error_code=41, error_message="no"), 41, "no"),
        ("quorum", pb.DescribeQuorumResponse(error_code=41), 41, None),
    ],
)
def test_a_refused_answer_is_a_refusal(
    call: str, outcome: Any, code: int, message: str | None
) -> None:
    assert refusal(call, outcome) == (code, message)


def refusal(call: str, outcome: Any) -> tuple[ErrorCode, str | None]:
    async def scenario() -> tuple[ErrorCode, str | None]:
        cluster, _ = cluster_of(outcome)
        try:
            match call:
                case "forward":
                    await cluster.forward(REQUEST, timeout_ms=5)
                case "allocate":
                    await cluster.allocate_producer_ids(timeout_ms=5)
                case _:
                    await cluster.describe_quorum(timeout_ms=5)
        except ControllerRefused as refused:
            return refused.code, refused.message
        raise AssertionError("it was not refused")

    return asyncio.run(scenario())


def test_what_is_not_known_of_the_quorum_is_not_made_up() -> None:
    known = pb.QuorumReplica(
        key=common.VoterKey(node_id=1, directory_id=DIRECTORY.raw),
        log_end_offset=0,
        last_fetch_timestamp_ms=0,
        last_caught_up_timestamp_ms=9,
        endpoint=common.Endpoint(host="h", port=7),
    )
    unknown = pb.QuorumReplica(key=common.VoterKey(node_id=2, directory_id=DIRECTORY.raw))
    answer = pb.DescribeQuorumResponse(
        active_controller=common.ActiveController(node_id=1, term=4),
        high_watermark=5,
        voters=[known],
        observers=[unknown],
    )

    async def scenario() -> None:
        cluster, _ = cluster_of(answer)
        found = await cluster.describe_quorum(timeout_ms=5)
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (1, 4, 5)
        address = SocketAddress("h", 7)
        times = (TimestampMs(0), TimestampMs(9))
        assert found.voters == (QuorumMember(NodeId(1), DIRECTORY, Offset(0), *times, address),)
        assert found.observers == (QuorumMember(NodeId(2), DIRECTORY),)

    asyncio.run(scenario())
