"""What replicas ask of the active controller, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionReport
from tidelog.controller.decisions.directories import AssignmentAnswer, DirectoryAssignment
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.metadata.partitions import PartitionRef


class ControllerPort(Protocol):
    """Each call is answered when the change is committed, or raises ``PeerError``.

    A call that failed may have been carried out all the same.
    """

    async def alter_partition(self, reports: Sequence[PartitionReport]) -> AlterPartitionAnswer:
        """Changes of ISRs, for all partitions that have one to report."""
        ...

    async def assign_directories(
        self, assignments: Sequence[DirectoryAssignment]
    ) -> AssignmentAnswer:
        """In which of its log directories this broker keeps replicas."""
        ...

    async def restarted_empty(self, partition: PartitionRef) -> ApiError:
        """This broker has discarded its replica's log, as it was told to (DESIGN 2.4)."""
        ...
