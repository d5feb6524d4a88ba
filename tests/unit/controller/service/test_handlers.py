"""The calls of the contract, one by one: what is answered, and how nonsense is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import CLUSTER_ID, FEATURES, context_of, directory, node, uuid

from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.registration import (
    RecoveryReport,
    RecoveryVerdict,
    RegistrationRequest,
)
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import Endpoint, FeatureRange, RegisterBroker
from tidelog.controller.raft.model import ReplicaKey
from tidelog.controller.service.contract import (
    PEER_LISTENER,
    Malformed,
    registration_message,
    registration_request,
)
from tidelog.controller.service.controller import Cause
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    IncarnationId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.v1 import common_pb2 as common
from tidelog.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk, ScriptedStream

AtTheDesk = Callable[..., Any]


def new_stream() -> ScriptedStream:
    from tests.unit.controller.service.conftest import ScriptedStream

    return ScriptedStream()


async def create(desk: Desk, name: str, *replicas: int) -> PartitionRef:
    topic = NewTopic(name, assignments=((0, tuple(map(node, replicas))),))
    [made] = await desk.controller.change(
        Cause("create", "test"),
        lambda b: decide_create_topics(b.image, b.policy, [topic], b.random),
    )
    assert made.error.code is ErrorCode.NONE, made
    return PartitionRef(made.topic_id, PartitionIndex(0))


def test_registration_is_idempotent_by_incarnation(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        answers = [await desk.register(desk.request(11)) for _ in range(3)]
        assert [one.error_code for one in answers] == [0, 0, 0]
        assert len({one.broker_epoch for one in answers}) == 1
        records = [record for batch in desk.log.committed for record in batch.records]
        assert sum(isinstance(record, RegisterBroker) for record in records) == 1

    at_the_desk(scenario)


def test_another_incarnation_waits_for_the_session_of_the_living(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        first, stream = await desk.add_broker(11)
        refused = await desk.register(desk.request(11, incarnation=2))
        assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        stream.reset()
        await asyncio.sleep(0.01)
        taken = await desk.register(desk.request(11, incarnation=2))
        assert taken.error_code == ErrorCode.NONE
        assert taken.broker_epoch > first

    at_the_desk(scenario)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(11),) * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"features": (FeatureRange("metadata.version", 1, 7),)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"rack": "r" * 300}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_registrations(
    at_the_desk: AtTheDesk, changes: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario(desk: Desk) -> None:
        request = desk.request(11, **changes)
        answer = await desk.register(request)
        assert (answer.error_code, bool(answer.error_message)) == (code, True)
        assert not desk.controller.committed.brokers

    at_the_desk(scenario)


def test_a_node_speaks_for_itself_only(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        message = registration_message(desk.request(11))
        answer = await desk.handlers.register_broker(context_of(12), message)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        ids = pb.AllocateProducerIdsRequest(broker_id=11, broker_epoch=1)
        block = await desk.handlers.allocate_producer_ids(context_of(12), ids)
        assert block.error_code == ErrorCode.INVALID_REQUEST

    at_the_desk(scenario)


def test_a_registration_says_the_same_on_both_sides() -> None:
    report = RecoveryReport(
        PartitionRef(TopicId(Uuid(b"t" * 16)), PartitionIndex(3)),
        LeaderEpoch(-1),
        Offset(17),
        RecoveryVerdict.SUSPECT,
    )
    request = RegistrationRequest(
        broker_id=node(3),
        cluster_id=CLUSTER_ID,
        incarnation_id=IncarnationId(uuid(1)),
        log_dirs=(directory(1), directory(2)),
        endpoints=(Endpoint("SSL", "a.example", 9094, 1),),
        features=FEATURES,
        rack="r1",
        peer_endpoint=Endpoint(PEER_LISTENER, "b.example", 9093),
        previous_broker_epoch=BrokerEpoch(12),
        reports=(report,),
        held=frozenset({report.partition, report.partition._replace(partition=PartitionIndex(0))}),
    )
    assert registration_request(registration_message(request)) == request


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"broker_id": -4}, "broker id -4 is negative"),
        ({"incarnation_id": b"short"}, "incarnation id has 5 bytes"),
        ({"log_directory_ids": [b"d" * 16] * 300}, "300 log directories are too many"),
        ({"listeners": [pb.BrokerListener(name="P", host="h", port=70000)]}, "port 70000"),
        ({"listeners": [pb.BrokerListener(name="P", host="h", port=1)] * 65}, "65 listeners"),
        (
            {"recovered_replicas": [pb.RecoveredReplica(verdict=pb.RECOVERY_VERDICT_UNSPECIFIED)]},
            "verdict 0 is not known",
        ),
    ],
)
def test_malformed_registrations(changes: dict[str, Any], words: str) -> None:
    values: dict[str, Any] = {"broker_id": 1, "incarnation_id": b"i" * 16}
    with pytest.raises(Malformed, match=words):
        registration_request(pb.RegisterBrokerRequest(**(values | changes)))


def test_directories_that_are_offline_do_not_count() -> None:
    message = pb.RegisterBrokerRequest(
        incarnation_id=b"i" * 16,
        log_directory_ids=[b"a" * 16, b"b" * 16],
        offline_log_directory_ids=[b"b" * 16],
    )
    assert [d.raw for d in registration_request(message).log_dirs] == [b"a" * 16]


# Calls to a standby.


def test_a_standby_refuses_and_names_the_active_one(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        desk.log.leader, desk.log.term = node(3), 9
        me, handlers = context_of(11), desk.handlers
        answers: list[Any] = [
            await desk.register(desk.request(11)),
            await handlers.unregister_broker(me, pb.UnregisterBrokerRequest(broker_id=1)),
            await handlers.alter_partition(me, pb.AlterPartitionRequest(broker_id=11)),
            await handlers.allocate_producer_ids(me, pb.AllocateProducerIdsRequest(broker_id=11)),
            await handlers.forward(me, pb.ForwardRequest(api_key=19, api_version=7)),
            await handlers.describe_quorum(me, pb.DescribeQuorumRequest()),
        ]
        for answer in answers:
            assert answer.error_code == ErrorCode.NOT_CONTROLLER, answer
            assert (answer.active_controller.node_id, answer.active_controller.term) == (3, 9)
        desk.log.leader = None
        lost = await desk.register(desk.request(11))
        assert lost.error_code == ErrorCode.NOT_CONTROLLER
        assert not lost.HasField("active_controller")

    at_the_desk(scenario, standby=True)


def test_leadership_lost_before_the_commit_is_not_controller(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        desk.log.hold()
        waiting = asyncio.ensure_future(desk.register(desk.request(11)))
        await asyncio.sleep(1)
        assert not waiting.done()
        desk.log.depose()
        answer = await waiting
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert not answer.broker_epoch

    at_the_desk(scenario)


def test_an_overloaded_quorum_is_a_reason_to_retry(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await asyncio.sleep(0.1)
        desk.log.is_overloaded = True
        answer = await desk.register(desk.request(11))
        assert ErrorCode(answer.error_code).retriable

    at_the_desk(scenario)


# AlterPartition.


def proposal(ref: PartitionRef, leader_epoch: int, epoch: int, **isr: int | None) -> Any:
    return pb.ProposedIsr(
        partition=common.PartitionKey(topic_id=ref.topic_id.raw, partition=ref.partition),
        leader_epoch=leader_epoch,
        partition_epoch=epoch,
        new_isr=[pb.IsrMember(broker_id=int(b[1:]), broker_epoch=e) for b, e in isr.items()],
    )


def test_alter_partition_is_fenced_in_every_way(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        leader, _ = await desk.add_broker(11)
        follower, _ = await desk.add_broker(12)
        ref = await create(desk, "t", 11, 12)

        async def ask(one: pb.ProposedIsr, epoch: int = leader) -> pb.AlterPartitionResponse:
            request = pb.AlterPartitionRequest(broker_id=11, broker_epoch=epoch, partitions=[one])
            return await desk.handlers.alter_partition(context_of(11), request)

        shrunk = await ask(proposal(ref, 0, 0, b11=leader))
        assert [list(p.isr) for p in shrunk.partitions] == [[11]]
        assert shrunk.partitions[0].partition_epoch == 1
        assert shrunk.partitions[0].leader_id == 11
        stale = await ask(proposal(ref, 0, 0, b11=leader, b12=follower))
        assert stale.partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        wiped = await ask(proposal(ref, 0, 1, b11=leader, b12=follower - 1))
        assert wiped.partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
        old = await ask(proposal(ref, 0, 1, b11=leader), epoch=leader - 1)
        assert (old.error_code, len(old.partitions)) == (ErrorCode.STALE_BROKER_EPOCH, 0)
        grown = await ask(proposal(ref, 0, 1, b11=leader, b12=None))  # no epoch: no check
        assert sorted(grown.partitions[0].isr) == [11, 12]
        garbage = pb.ProposedIsr(partition=common.PartitionKey(topic_id=b"x"))
        assert (await ask(garbage)).error_code == ErrorCode.INVALID_REQUEST

    at_the_desk(scenario)


def test_absurd_reports_are_refused(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        ref = PartitionRef(TopicId(Uuid(b"t" * 16)), PartitionIndex(0))
        many = pb.AlterPartitionRequest(broker_id=11, partitions=[proposal(ref, 0, 0)] * 10_001)
        answer = await desk.handlers.alter_partition(context_of(11), many)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    at_the_desk(scenario)


def test_brokers_report_where_replicas_lie_and_which_they_emptied(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        dirs = (directory(1), directory(2))
        epoch = (await desk.register(desk.request(11, log_dirs=dirs))).broker_epoch
        stream = new_stream()
        desk.spawn_heartbeats(11, stream)
        stream.put(desk.heartbeat(epoch))
        await asyncio.sleep(0.1)
        ref = await create(desk, "t", 11)
        key = common.PartitionKey(topic_id=ref.topic_id.raw, partition=0)
        request = pb.ReportReplicasRequest(
            broker_id=11,
            broker_epoch=epoch,
            directories=[pb.ReplicaDirectory(partition=key, directory_id=directory(2).raw)],
            emptied=[key],
        )
        answer = await desk.handlers.report_replicas(context_of(11), request)
        assert answer.error_code == 0
        assert [*answer.directory_error_codes, *answer.emptied_error_codes] == [0, 0]
        state = desk.controller.committed.topics.partition(ref)
        assert state is not None and state.directories == (directory(2),)
        request.broker_epoch = epoch - 1
        stale = await desk.handlers.report_replicas(context_of(11), request)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH

    at_the_desk(scenario)


def test_a_decision_that_fits_into_no_batch_is_refused(
    at_the_desk: AtTheDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("a batch of 5 records is too large for the metadata log")

    async def scenario(desk: Desk) -> None:
        monkeypatch.setattr(desk.member, "propose", refuse)
        before = desk.controller.image
        answer = await desk.register(desk.request(11))
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert desk.controller.image is before

    at_the_desk(scenario)


# Producer ids, brokers, the quorum.


def test_blocks_of_producer_ids_do_not_overlap(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        epoch, _ = await desk.add_broker(11)
        request = pb.AllocateProducerIdsRequest(broker_id=11, broker_epoch=epoch)
        blocks = await asyncio.gather(
            *(desk.handlers.allocate_producer_ids(context_of(11), request) for _ in range(5))
        )
        ids = [i for b in blocks for i in range(b.first_producer_id, b.first_producer_id + b.count)]
        assert len(ids) == len(set(ids)) == 5000
        request.broker_epoch = epoch + 100
        stale = await desk.handlers.allocate_producer_ids(context_of(11), request)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH

    at_the_desk(scenario)


def test_a_broker_is_taken_off_the_list(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.add_broker(11)
        request = pb.UnregisterBrokerRequest(broker_id=11)
        assert (await desk.handlers.unregister_broker(context_of(1), request)).error_code == 0
        again = await desk.handlers.unregister_broker(context_of(1), request)
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    at_the_desk(scenario)


def test_the_quorum_is_described_and_changed(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        described = await desk.handlers.describe_quorum(context_of(1), pb.DescribeQuorumRequest())
        assert [voter.key.node_id for voter in described.voters] == [1]
        told = described.voters[0].endpoint  # never elected with a registration, and known still
        assert (told.host, told.port) == ("there", 9093)
        assert described.high_watermark == desk.log.high_watermark
        key = common.VoterKey(node_id=4, directory_id=directory(4).raw)
        add = pb.AddVoterRequest(voter=common.Voter(key=key))
        assert (await desk.handlers.add_voter(context_of(1), add)).error_code == 0
        remove = pb.RemoveVoterRequest(key=key)
        assert (await desk.handlers.remove_voter(context_of(1), remove)).error_code == 0
        voter = ReplicaKey(node(4), directory(4))
        assert desk.member.changes == [("add", voter), ("remove", voter)]
        bad = pb.RemoveVoterRequest(key=common.VoterKey(node_id=4, directory_id=b"no"))
        refused = await desk.handlers.remove_voter(context_of(1), bad)
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    at_the_desk(scenario, controller_quorum_voters="1@there:9093,2@elsewhere:9093")
