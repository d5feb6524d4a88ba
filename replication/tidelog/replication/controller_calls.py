"""Calls to the controller on behalf of partitions: gathered, one of each kind under way, repeated.

A report about an ISR is sent as it was made until its machine knows the outcome (hazard 6: sending
it again must not refresh anything in it). Reports that gather while a call is under way go with
the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tidelog.controller.decisions.alter_partition import PartitionReport
from tidelog.controller.decisions.directories import DirectoryAssignment
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import DirectoryId
from tidelog.kernel.peers import PeerError
from tidelog.replication.controller_port import ControllerPort
from tidelog.replication.leader import Answer
from tidelog.replication.partition import Partition
from tidelog.replication.settings import ISR_RETRY_MS

_log = logging.getLogger(__name__)
V = TypeVar("V")


class ControllerCalls:
    """Owned by ``ReplicaSet``, which adds what partitions want said."""

    def __init__(
        self, port: ControllerPort, partitions: Callable[[], Mapping[PartitionRef, Partition]]
    ) -> None:
        self._port = port
        self._partitions = partitions
        self._reports: dict[PartitionRef, PartitionReport] = {}
        self._assignments: dict[PartitionRef, DirectoryId] = {}
        self._emptied: dict[PartitionRef, None] = {}
        self._reports_wake = asyncio.Event()
        self._notes_wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        reporting = self._run(self._reports_wake, self._send_reports)
        noting = self._run(self._notes_wake, self._send_notes)
        self._tasks = [
            loop.create_task(reporting, name="report ISRs to the controller"),
            loop.create_task(noting, name="report directories to the controller"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- what is to be said ------------------------------------------------------------

    def report(self, report: PartitionReport) -> None:
        self._reports[report.partition] = report
        self._reports_wake.set()

    def assign(self, ref: PartitionRef, directory: DirectoryId) -> None:
        self._assignments[ref] = directory
        self._notes_wake.set()

    def emptied(self, ref: PartitionRef) -> None:
        self._emptied[ref] = None
        self._notes_wake.set()

    def forget(self, ref: PartitionRef) -> None:
        for things in (self._reports, self._assignments, self._emptied):
            things.pop(ref, None)

    # --- saying it ---------------------------------------------------------------------

    async def _run(self, wake: asyncio.Event, send: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await wake.wait()
            wake.clear()
            try:
                is_done = await send()
            except PeerError as error:
                _log.info("the controller did not answer: %s", error)
                is_done = False
            if not is_done:
                wake.set()
                await asyncio.sleep(ISR_RETRY_MS / 1000)

    async def _send_reports(self) -> bool:
        """True if nothing has to be sent again."""
        reports = [report for report in self._reports.values() if self._is_open(report)]
        self._reports = {report.partition: report for report in reports}
        if not reports:
            return True
        answer = await self._port.alter_partition(reports)
        if answer.error.code is not ErrorCode.NONE:
            _log.info("the controller refused reports of partitions: %s", answer.error)
            return False
        by_ref = {report.partition: report for report in reports}
        answered = {verdict.partition: verdict for verdict in answer.partitions}
        is_done = True
        for ref, report in by_ref.items():
            verdict = answered.get(ref)
            partition = self._partitions().get(ref)
            if verdict is None:
                is_done = False
                continue
            outcome = Answer.STALE
            if partition is not None:
                code, state = verdict.error.code, verdict.state
                outcome = partition.report_answered(report, code, state)
            if outcome is Answer.SEND_AGAIN:
                is_done = False
            elif self._reports.get(ref) is report:
                del self._reports[ref]
        return is_done

    def _is_open(self, report: PartitionReport) -> bool:
        partition = self._partitions().get(report.partition)
        return partition is not None and partition.is_open_report(report)

    async def _send_notes(self) -> bool:
        return await self._send_directories() & await self._send_emptied()

    async def _send_directories(self) -> bool:
        assignments = [DirectoryAssignment(*item) for item in self._assignments.items()]
        if not assignments:
            return True
        answer = await self._port.assign_directories(assignments)
        if answer.error.code is not ErrorCode.NONE:
            _log.info("the controller refused directories: %s", answer.error)
            return False
        for sent in assignments:
            _drop(self._assignments, sent.partition, sent.directory)
        for ref, error in answer.partitions:
            if error.is_error:
                _log.warning("%s: its directory was not taken note of: %s", ref, error)
        return True

    async def _send_emptied(self) -> bool:
        is_done = True
        for ref in list(self._emptied):
            error = await self._port.restarted_empty(ref)
            if error.code in _SETTLED:
                self._emptied.pop(ref, None)
            else:
                is_done = False
        return is_done


_SETTLED = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def _drop(things: dict[PartitionRef, V], ref: PartitionRef, value: V) -> None:
    if things.get(ref) == value:
        del things[ref]
