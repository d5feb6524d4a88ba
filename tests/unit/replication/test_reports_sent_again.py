"""A report of an ISR says the same however often it is sent (hazard 6, KIP-903)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from tidelog.controller.decisions.alter_partition import (
    AlterPartitionAnswer,
    IsrMember,
    PartitionReport,
    PartitionVerdict,
)
from tidelog.controller.decisions.directories import AssignmentAnswer, DirectoryAssignment
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.kernel.peers import PeerUnavailable
from tidelog.replication.controller_calls import ControllerCalls
from tidelog.replication.leader import Answer
from tidelog.replication.partition import Partition
from tidelog.simulation import World, run_simulation

REF = PartitionRef(TopicId(Uuid(bytes([7] * 16))), PartitionIndex(0))
REPORT = PartitionReport(
    REF,
    LeaderEpoch(3),
    PartitionEpoch(5),
    (IsrMember(NodeId(1), BrokerEpoch(10)), IsrMember(NodeId(2), BrokerEpoch(11))),
)


class NewerRegistrations:
    """Everybody has registered again since the report was made."""

    def epoch_of(self, broker: NodeId) -> BrokerEpoch:
        return BrokerEpoch(100 + broker)


@dataclass
class Machine:
    _cluster: NewerRegistrations = field(default_factory=NewerRegistrations)


@dataclass
class Leading:
    """A partition that waits for the answer to its report."""

    leader: Machine = field(default_factory=Machine)
    answered: list[ErrorCode] = field(default_factory=list)

    def is_open_report(self, report: PartitionReport) -> bool:
        return not self.answered

    def report_answered(
        self, report: PartitionReport, code: ErrorCode, state: PartitionState | None
    ) -> Answer:
        self.answered.append(code)
        return Answer.REVERTED


@dataclass
class ForgetfulController:
    """Loses the first request, does not lead at the second, and answers the third."""

    sent: list[tuple[PartitionReport, ...]] = field(default_factory=list)

    async def alter_partition(self, reports: Sequence[PartitionReport]) -> AlterPartitionAnswer:
        self.sent.append(tuple(reports))
        match len(self.sent):
            case 1:
                raise PeerUnavailable("lost on the way")
            case 2:
                return AlterPartitionAnswer(ApiError(ErrorCode.NOT_CONTROLLER))
            case _:
                refusal = ApiError(ErrorCode.INELIGIBLE_REPLICA)
                return AlterPartitionAnswer(NO_ERROR, (PartitionVerdict(REF, refusal),))

    async def assign_directories(
        self, assignments: Sequence[DirectoryAssignment]
    ) -> AssignmentAnswer:
        return AssignmentAnswer(NO_ERROR)

    async def restarted_empty(self, partition: PartitionRef) -> ApiError:
        return NO_ERROR


def test_a_report_that_is_sent_again_says_what_it_said() -> None:
    async def main(world: World) -> tuple[ForgetfulController, Leading]:
        controller, partition = ForgetfulController(), Leading()
        partitions = {REF: cast(Partition, partition)}
        calls = ControllerCalls(controller, lambda: partitions)
        calls.start()
        calls.report(REPORT)
        await asyncio.sleep(1.0)
        await calls.close()
        return controller, partition

    controller, partition = run_simulation(main, 1)
    assert controller.sent == [(REPORT,), (REPORT,), (REPORT,)]
    assert partition.answered == [ErrorCode.INELIGIBLE_REPLICA]
