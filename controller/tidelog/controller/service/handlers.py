"""The calls of the Controller contract, one method each.

Each answers with a Kafka error code in its own message. What changes something is answered when it
is committed; ``answered`` turns every way in which that can fail into the answer that says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.controller.decisions.alter_partition import decide_alter_partition
from tidelog.controller.decisions.directories import decide_directory_assignments
from tidelog.controller.decisions.producer_ids import decide_producer_ids
from tidelog.controller.decisions.registration import decide_registration, decide_unregistration
from tidelog.controller.decisions.restart_empty import decide_restarted_empty
from tidelog.controller.quorum.errors import RequestRefused
from tidelog.controller.quorum.interface import NotController, ReplicaStatus
from tidelog.controller.service import contract
from tidelog.controller.service.controller import Cause, Controller
from tidelog.controller.service.forwarding import Forwarding
from tidelog.controller.service.refusals import (
    REFUSALS,
    Answer,
    error_of,
    error_of_change,
    name_active,
    set_error,
)
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import BrokerEpoch, NodeId
from tidelog.kernel.peers import CallContext
from tidelog.kernel.settings.checks import endpoints
from tidelog.v1 import common_pb2 as common
from tidelog.v1 import controller_pb2 as pb

A = TypeVar("A", bound=Answer)


class Handlers:
    def __init__(self, controller: Controller, forwarding: Forwarding) -> None:
        self._controller = controller
        self._forwarding = forwarding

    async def register_broker(
        self, context: CallContext, message: pb.RegisterBrokerRequest
    ) -> pb.RegisterBrokerResponse:
        async def register() -> pb.RegisterBrokerResponse:
            request = contract.registration_request(message)
            _check_caller(context, request.broker_id)
            known = self._controller.image.brokers.get(request.broker_id)
            has_session = known is not None and self._controller.liveness.has_session(
                self._controller.clock.monotonic_ms(), known.broker_id, known.epoch
            )
            cause = Cause(
                f"register broker {request.broker_id}",
                f"its incarnation {request.incarnation_id} asked for it",
            )
            answer = await self._controller.change(
                cause,
                lambda basis: decide_registration(
                    basis.image,
                    basis.policy,
                    request,
                    next_offset=basis.next_offset,
                    has_session=has_session,
                ),
            )
            response = pb.RegisterBrokerResponse(broker_epoch=answer.broker_epoch)
            set_error(response, answer.error)
            return response

        return await self._answered(pb.RegisterBrokerResponse, register)

    async def unregister_broker(
        self, context: CallContext, message: pb.UnregisterBrokerRequest
    ) -> pb.UnregisterBrokerResponse:
        async def unregister() -> pb.UnregisterBrokerResponse:
            broker = NodeId(message.broker_id)
            cause = Cause(f"unregister broker {broker}", f"node {context.caller.node_id} asked")
            error = await self._controller.change(
                cause, lambda basis: decide_unregistration(basis.image, basis.policy, broker)
            )
            response = pb.UnregisterBrokerResponse()
            set_error(response, error)
            return response

        return await self._answered(pb.UnregisterBrokerResponse, unregister)

    async def alter_partition(
        self, context: CallContext, message: pb.AlterPartitionRequest
    ) -> pb.AlterPartitionResponse:
        async def alter() -> pb.AlterPartitionResponse:
            broker = NodeId(message.broker_id)
            _check_caller(context, broker)
            proposed = contract.partition_reports(message)
            answer = await self._controller.change(
                Cause(f"alter {len(proposed)} partition(s)", f"leader {broker} reported"),
                lambda basis: decide_alter_partition(
                    basis.image,
                    basis.policy,
                    broker,
                    BrokerEpoch(message.broker_epoch),
                    [contract.partition_report(one, basis.image) for one in proposed],
                ),
            )
            return contract.alter_partition_response(answer)

        return await self._answered(pb.AlterPartitionResponse, alter)

    async def report_replicas(
        self, context: CallContext, message: pb.ReportReplicasRequest
    ) -> pb.ReportReplicasResponse:
        async def report() -> pb.ReportReplicasResponse:
            broker, epoch = NodeId(message.broker_id), BrokerEpoch(message.broker_epoch)
            _check_caller(context, broker)
            assignments = contract.directory_assignments(message)
            emptied = [contract.partition_ref(key) for key in message.emptied]
            answer = await self._controller.change(
                Cause(f"note where {len(assignments)} replica(s) lie", f"broker {broker} said so"),
                lambda basis: decide_directory_assignments(
                    basis.image, basis.policy, broker, epoch, assignments
                ),
            )
            response = pb.ReportReplicasResponse(
                directory_error_codes=[error.code for _, error in answer.partitions]
            )
            set_error(response, answer.error)
            for ref in emptied:
                error = await self._controller.change(
                    Cause(f"count replica {ref} again", f"broker {broker} has emptied it"),
                    lambda basis, ref=ref: decide_restarted_empty(  # type: ignore[misc]
                        basis.image, ref, broker, epoch
                    ),
                )
                response.emptied_error_codes.append(error.code)
            return response

        return await self._answered(pb.ReportReplicasResponse, report)

    async def allocate_producer_ids(
        self, context: CallContext, message: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse:
        async def allocate() -> pb.AllocateProducerIdsResponse:
            broker, epoch = NodeId(message.broker_id), BrokerEpoch(message.broker_epoch)
            _check_caller(context, broker)
            block = await self._controller.change(
                Cause("hand out a block of producer ids", f"broker {broker} asked for one"),
                lambda basis: decide_producer_ids(basis.image, broker, epoch),
            )
            response = pb.AllocateProducerIdsResponse(
                first_producer_id=block.first, count=block.size
            )
            set_error(response, block.error)
            return response

        return await self._answered(pb.AllocateProducerIdsResponse, allocate)

    async def forward(self, context: CallContext, message: pb.ForwardRequest) -> pb.ForwardResponse:
        async def forward() -> pb.ForwardResponse:
            outcome = await self._forwarding.handle(message)
            if isinstance(outcome, bytes):
                end = self._controller.history.end_offset
                return pb.ForwardResponse(response=outcome, metadata_end_offset=end)
            response = pb.ForwardResponse()
            set_error(response, outcome)
            return response

        return await self._answered(pb.ForwardResponse, forward)

    async def describe_quorum(
        self, context: CallContext, message: pb.DescribeQuorumRequest
    ) -> pb.DescribeQuorumResponse:
        async def describe() -> pb.DescribeQuorumResponse:
            quorum = self._controller.quorum
            if not quorum.is_active:
                raise NotController(quorum.leader_id, "only the active controller can tell")
            status = quorum.status()
            return pb.DescribeQuorumResponse(
                high_watermark=status.high_watermark,
                voters=[self._replica(one) for one in status.replicas if one.is_voter],
                observers=[self._replica(one) for one in status.replicas if not one.is_voter],
            )

        return await self._answered(pb.DescribeQuorumResponse, describe)

    async def add_voter(
        self, context: CallContext, message: pb.AddVoterRequest
    ) -> pb.AddVoterResponse:
        async def add() -> pb.AddVoterResponse:
            await self._controller.quorum.add_voter(contract.replica_key(message.voter.key))
            return pb.AddVoterResponse()

        return await self._answered(pb.AddVoterResponse, add)

    async def remove_voter(
        self, context: CallContext, message: pb.RemoveVoterRequest
    ) -> pb.RemoveVoterResponse:
        async def remove() -> pb.RemoveVoterResponse:
            await self._controller.quorum.remove_voter(contract.replica_key(message.key))
            return pb.RemoveVoterResponse()

        return await self._answered(pb.RemoveVoterResponse, remove)

    async def _answered(
        self, answer_type: Callable[[], A], attempt: Callable[[], Awaitable[A]]
    ) -> A:
        try:
            answer = await attempt()
        except REFUSALS as refusal:
            answer = answer_type()
            set_error(answer, error_of(refusal))
        except RequestRefused as refusal:
            answer = answer_type()
            set_error(answer, error_of_change(refusal))
        name_active(answer, self._controller.quorum)
        return answer

    def _replica(self, status: ReplicaStatus) -> pb.QuorumReplica:
        replica = pb.QuorumReplica(
            key=contract.voter_key(status.replica),
            log_end_offset=status.log_end_offset,
            last_fetch_timestamp_ms=status.last_fetch_ms,
            last_caught_up_timestamp_ms=status.last_caught_up_ms,
        )
        address = self._address(status.replica.node_id)
        if address is not None:
            replica.endpoint.CopyFrom(common.Endpoint(host=address.host, port=address.port))
        return replica

    def _address(self, node_id: NodeId) -> SocketAddress | None:
        """What a controller registered when it was elected, or where the voters' list has it."""
        known = self._controller.committed.controllers.get(node_id)
        if known is not None and known.endpoints:
            return SocketAddress(known.endpoints[0].host, known.endpoints[0].port)
        return endpoints(self._controller.policy.settings).voters.get(node_id)


def _check_caller(context: CallContext, broker: NodeId) -> None:
    """A node speaks for itself only; the transport has checked who it is."""
    if context.caller.node_id != broker:
        raise contract.Malformed(f"node {context.caller.node_id} spoke for broker {broker}")
