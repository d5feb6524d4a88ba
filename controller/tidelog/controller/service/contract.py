"""Messages of the ``Controller`` contract, and the types that decisions are made of.

What comes from outside is checked here once: ids have their length, numbers their range, lists a
bound. Whatever is not so is ``Malformed`` and answered with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Final

from tidelog.controller.decisions.alter_partition import (
    AlterPartitionAnswer,
    IsrMember,
    PartitionReport,
    PartitionVerdict,
)
from tidelog.controller.decisions.broker_states import BrokerHeartbeat
from tidelog.controller.decisions.directories import DirectoryAssignment
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.decisions.registration import (
    NO_BROKER_EPOCH,
    RecoveryReport,
    RecoveryVerdict,
    RegistrationRequest,
)
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import Endpoint, FeatureRange, LeaderRecovery
from tidelog.controller.raft.model import ReplicaKey
from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.v1 import common_pb2 as common
from tidelog.v1 import controller_pb2 as pb

MAX_LISTENERS: Final = 64
MAX_FEATURES: Final = 256
MAX_DIRECTORIES: Final = 256
MAX_TEXT: Final = 255
MAX_REPORTED_PARTITIONS: Final = 10_000
MAX_ISR: Final = 1_000

PEER_LISTENER: Final = "PEER"
"""The name under which a node's gRPC address stands in its registration."""


class Malformed(ValueError):
    """A message that no sound peer sends."""


def uuid_of(raw: bytes, what: str) -> Uuid:
    if len(raw) != 16:
        raise Malformed(f"{what} has {len(raw)} bytes, not 16")
    return Uuid(raw)


def partition_ref(key: common.PartitionKey) -> PartitionRef:
    if key.partition < 0:
        raise Malformed(f"partition {key.partition} is negative")
    return PartitionRef(TopicId(uuid_of(key.topic_id, "topic id")), PartitionIndex(key.partition))


def partition_key(ref: PartitionRef) -> common.PartitionKey:
    return common.PartitionKey(topic_id=ref.topic_id.raw, partition=ref.partition)


def replica_key(key: common.VoterKey) -> ReplicaKey:
    return ReplicaKey(
        NodeId(key.node_id), DirectoryId(uuid_of(key.directory_id, "the voter's directory id"))
    )


def voter_key(key: ReplicaKey) -> common.VoterKey:
    return common.VoterKey(node_id=key.node_id, directory_id=key.directory_id.raw)


def _check_count(values: Sized, limit: int, what: str) -> None:
    if len(values) > limit:
        raise Malformed(f"{len(values)} {what} are too many: at most {limit} are taken")


def _text(value: str, what: str) -> str:
    if not 0 < len(value) <= MAX_TEXT:
        raise Malformed(f"{what} has {len(value)} characters: 1 to {MAX_TEXT} are taken")
    return value


def _port(port: int) -> int:
    if not 0 < port <= 65535:
        raise Malformed(f"port {port} is not from 1 to 65535")
    return port


# Registration.


def registration_request(message: pb.RegisterBrokerRequest) -> RegistrationRequest:
    _check_count(message.listeners, MAX_LISTENERS, "listeners")
    _check_count(message.features, MAX_FEATURES, "features")
    _check_count(message.log_directory_ids, MAX_DIRECTORIES, "log directories")
    offline = set(_directories(message.offline_log_directory_ids))
    previous = message.previous_broker_epoch if message.HasField("previous_broker_epoch") else None
    return RegistrationRequest(
        broker_id=_broker_id(message.broker_id),
        cluster_id=message.cluster_id,
        incarnation_id=IncarnationId(uuid_of(message.incarnation_id, "incarnation id")),
        log_dirs=tuple(d for d in _directories(message.log_directory_ids) if d not in offline),
        endpoints=tuple(map(_endpoint, message.listeners)),
        features=tuple(
            FeatureRange(_text(f.name, "a feature's name"), f.min_level, f.max_level)
            for f in message.features
        ),
        rack=_text(message.rack, "the rack") if message.HasField("rack") else None,
        peer_endpoint=_peer_endpoint(message),
        previous_broker_epoch=NO_BROKER_EPOCH if previous is None else BrokerEpoch(previous),
        reports=tuple(_recovery_reports(message.recovered_replicas)),
        held=_held(message.held_replicas) if message.HasField("held_replicas") else None,
    )


def registration_message(request: RegistrationRequest) -> pb.RegisterBrokerRequest:
    message = pb.RegisterBrokerRequest(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id.raw,
        listeners=[
            pb.BrokerListener(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.endpoints
        ],
        features=[
            pb.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
            for f in request.features
        ],
        rack=request.rack,
        log_directory_ids=[directory.raw for directory in request.log_dirs],
        recovered_replicas=map(_recovered_replica, request.reports),
    )
    if request.peer_endpoint is not None:
        peer = request.peer_endpoint
        message.peer_endpoint.CopyFrom(common.Endpoint(host=peer.host, port=peer.port))
    if request.previous_broker_epoch != NO_BROKER_EPOCH:
        message.previous_broker_epoch = request.previous_broker_epoch
    if request.held is not None:
        message.held_replicas.CopyFrom(_held_replicas(request.held))
    return message


def _held(message: pb.HeldReplicas) -> frozenset[PartitionRef]:
    return frozenset(
        PartitionRef(TopicId(uuid_of(topic.topic_id, "a topic id")), PartitionIndex(index))
        for topic in message.topics
        for index in topic.partitions
    )


def _held_replicas(held: Iterable[PartitionRef]) -> pb.HeldReplicas:
    by_topic: dict[TopicId, list[int]] = {}
    for ref in sorted(held):
        by_topic.setdefault(ref.topic_id, []).append(ref.partition)
    return pb.HeldReplicas(
        topics=[pb.HeldTopic(topic_id=t.raw, partitions=p) for t, p in by_topic.items()]
    )


def _broker_id(number: int) -> NodeId:
    if number < 0:
        raise Malformed(f"broker id {number} is negative")
    return NodeId(number)


def _directories(raws: Iterable[bytes]) -> list[DirectoryId]:
    return [DirectoryId(uuid_of(raw, "a directory id")) for raw in raws]


def _endpoint(listener: pb.BrokerListener) -> Endpoint:
    return Endpoint(
        _text(listener.name, "a listener's name"),
        _text(listener.host, "a listener's host"),
        _port(listener.port),
        listener.security_protocol,
    )


def _peer_endpoint(message: pb.RegisterBrokerRequest) -> Endpoint | None:
    if not message.HasField("peer_endpoint"):
        return None
    peer = message.peer_endpoint
    return Endpoint(PEER_LISTENER, _text(peer.host, "the peer host"), _port(peer.port))


_VERDICTS: Final = {
    pb.RECOVERY_VERDICT_TORN_TAIL: RecoveryVerdict.TORN_TAIL,
    pb.RECOVERY_VERDICT_SUSPECT: RecoveryVerdict.SUSPECT,
}
_VERDICT_NUMBERS: Final = {verdict: number for number, verdict in _VERDICTS.items()}


def _recovery_reports(replicas: Iterable[pb.RecoveredReplica]) -> Iterable[RecoveryReport]:
    for replica in replicas:
        if replica.verdict == pb.RECOVERY_VERDICT_CLEAN:
            continue
        verdict = _VERDICTS.get(replica.verdict)
        if verdict is None:
            raise Malformed(f"recovery verdict {replica.verdict} is not known")
        epoch = replica.last_epoch if replica.HasField("last_epoch") else NO_LEADER_EPOCH
        yield RecoveryReport(
            partition_ref(replica.partition),
            LeaderEpoch(epoch),
            Offset(replica.end_offset),
            verdict,
        )


def _recovered_replica(report: RecoveryReport) -> pb.RecoveredReplica:
    epoch = report.last_epoch
    return pb.RecoveredReplica(
        partition=partition_key(report.partition),
        last_epoch=None if epoch == NO_LEADER_EPOCH else epoch,
        end_offset=report.end,
        verdict=_VERDICT_NUMBERS[report.verdict],
    )


# Heartbeats.


def broker_heartbeat(broker: NodeId, message: pb.HeartbeatRequest) -> BrokerHeartbeat:
    """Of a registered broker: the message has an epoch."""
    _check_count(message.offline_log_directory_ids, MAX_DIRECTORIES, "log directories")
    return BrokerHeartbeat(
        broker_id=broker,
        broker_epoch=BrokerEpoch(message.broker_epoch),
        metadata_offset=Offset(message.metadata_end_offset - 1),
        wants_fence=message.want_fence,
        wants_shut_down=message.want_shut_down,
        offline_log_dirs=tuple(_directories(message.offline_log_directory_ids)),
    )


# AlterPartition.


def directory_assignments(message: pb.ReportReplicasRequest) -> list[DirectoryAssignment]:
    _check_count(message.directories, MAX_REPORTED_PARTITIONS, "directories of replicas")
    _check_count(message.emptied, MAX_REPORTED_PARTITIONS, "emptied replicas")
    return [
        DirectoryAssignment(
            partition_ref(one.partition),
            DirectoryId(uuid_of(one.directory_id, "the replica's directory id")),
        )
        for one in message.directories
    ]


def partition_reports(message: pb.AlterPartitionRequest) -> list[pb.ProposedIsr]:
    _check_count(message.partitions, MAX_REPORTED_PARTITIONS, "partitions")
    for proposed in message.partitions:
        _check_count(proposed.new_isr, MAX_ISR, "members of an ISR")
        partition_ref(proposed.partition)
    return list(message.partitions)


def partition_report(proposed: pb.ProposedIsr, image: MetadataImage) -> PartitionReport:
    """A member without an epoch is taken as it is registered, as the contract has it."""
    recovering = proposed.is_recovering
    return PartitionReport(
        partition=partition_ref(proposed.partition),
        leader_epoch=LeaderEpoch(proposed.leader_epoch),
        partition_epoch=PartitionEpoch(proposed.partition_epoch),
        isr=tuple(_isr_member(member, image) for member in proposed.new_isr),
        recovery=LeaderRecovery.RECOVERING if recovering else LeaderRecovery.RECOVERED,
    )


def _isr_member(member: pb.IsrMember, image: MetadataImage) -> IsrMember:
    broker = NodeId(member.broker_id)
    if member.HasField("broker_epoch"):
        return IsrMember(broker, BrokerEpoch(member.broker_epoch))
    known = image.brokers.get(broker)
    return IsrMember(broker, NO_BROKER_EPOCH if known is None else known.epoch)


def proposed_isr(report: PartitionReport) -> pb.ProposedIsr:
    return pb.ProposedIsr(
        partition=partition_key(report.partition),
        leader_epoch=report.leader_epoch,
        partition_epoch=report.partition_epoch,
        new_isr=[pb.IsrMember(broker_id=m.broker, broker_epoch=m.epoch) for m in report.isr],
        is_recovering=report.recovery is LeaderRecovery.RECOVERING,
    )


def alter_partition_response(answer: AlterPartitionAnswer) -> pb.AlterPartitionResponse:
    return pb.AlterPartitionResponse(
        error_code=answer.error.code,
        error_message=words(answer.error),
        partitions=map(_altered_partition, answer.partitions),
    )


def _altered_partition(verdict: PartitionVerdict) -> pb.AlteredPartition:
    message = pb.AlteredPartition(
        partition=partition_key(verdict.partition), error_code=verdict.error.code
    )
    state = verdict.state
    if state is not None:
        if state.has_leader:
            message.leader_id = state.leader
        message.leader_epoch = state.leader_epoch
        message.partition_epoch = state.partition_epoch
        message.isr.extend(state.isr)
        message.is_recovering = state.leader_recovery is LeaderRecovery.RECOVERING
    return message


def words(error: ApiError) -> str:
    """What people are told; the table's own words if the decision had none."""
    if not error.is_error:
        return ""
    return error.message if error.message is not None else error.code.message
