"""What replicas ask of the controller, on top of the client that a broker has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import ControllerClient, NotRegistered
from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionReport
from tidelog.controller.decisions.directories import AssignmentAnswer, DirectoryAssignment
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.peers import PeerUnavailable

_TIMEOUT_MS: Final = 5_000.0


class ReplicaController:
    """A ``ControllerPort``."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client

    async def alter_partition(self, reports: Sequence[PartitionReport]) -> AlterPartitionAnswer:
        try:
            return await self._client.alter_partition(reports, timeout_ms=_TIMEOUT_MS)
        except (ControllerUnavailable, NotRegistered) as error:
            raise PeerUnavailable(str(error)) from error

    async def assign_directories(
        self, assignments: Sequence[DirectoryAssignment]
    ) -> AssignmentAnswer:
        try:
            answer = await self._client.report_replicas(assignments, (), timeout_ms=_TIMEOUT_MS)
        except (ControllerUnavailable, NotRegistered) as error:
            raise PeerUnavailable(str(error)) from error
        errors = [ApiError(ErrorCode(code)) for code in answer.directory_error_codes]
        return AssignmentAnswer(
            ApiError(ErrorCode(answer.error_code), answer.error_message or None),
            tuple(zip((one.partition for one in assignments), errors, strict=False)),
        )

    async def restarted_empty(self, partition: PartitionRef) -> ApiError:
        try:
            answer = await self._client.report_replicas((), (partition,), timeout_ms=_TIMEOUT_MS)
        except (ControllerUnavailable, NotRegistered) as error:
            raise PeerUnavailable(str(error)) from error
        code = answer.emptied_error_codes[0] if answer.emptied_error_codes else answer.error_code
        return ApiError(ErrorCode(code), answer.error_message or None)
