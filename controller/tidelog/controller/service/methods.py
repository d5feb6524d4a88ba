"""The methods of the ``Controller`` contract."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.peers import Stream, Unary
from tidelog.v1 import controller_pb2 as pb

_SERVICE: Final = "/tidelog.v1.Controller/"

REGISTER_BROKER: Final = Unary(
    f"{_SERVICE}RegisterBroker", pb.RegisterBrokerRequest, pb.RegisterBrokerResponse
)
UNREGISTER_BROKER: Final = Unary(
    f"{_SERVICE}UnregisterBroker", pb.UnregisterBrokerRequest, pb.UnregisterBrokerResponse
)
HEARTBEAT: Final = Stream(f"{_SERVICE}Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse)
WATCH_METADATA: Final = Stream(
    f"{_SERVICE}WatchMetadata", pb.WatchMetadataRequest, pb.WatchMetadataResponse
)
ALTER_PARTITION: Final = Unary(
    f"{_SERVICE}AlterPartition", pb.AlterPartitionRequest, pb.AlterPartitionResponse
)
REPORT_REPLICAS: Final = Unary(
    f"{_SERVICE}ReportReplicas", pb.ReportReplicasRequest, pb.ReportReplicasResponse
)
ALLOCATE_PRODUCER_IDS: Final = Unary(
    f"{_SERVICE}AllocateProducerIds",
    pb.AllocateProducerIdsRequest,
    pb.AllocateProducerIdsResponse,
)
FORWARD: Final = Unary(f"{_SERVICE}Forward", pb.ForwardRequest, pb.ForwardResponse)
DESCRIBE_QUORUM: Final = Unary(
    f"{_SERVICE}DescribeQuorum", pb.DescribeQuorumRequest, pb.DescribeQuorumResponse
)
ADD_VOTER: Final = Unary(f"{_SERVICE}AddVoter", pb.AddVoterRequest, pb.AddVoterResponse)
REMOVE_VOTER: Final = Unary(f"{_SERVICE}RemoveVoter", pb.RemoveVoterRequest, pb.RemoveVoterResponse)
