"""Lives of transactional clients: writers that commit and abort, copiers that read and write.

A ``Writer`` scatters records over partitions. Sometimes a request to end a transaction that is over
already is sent again later, as a network may do it: no transaction after it may feel that.

A ``Copier`` reads one partition and writes what it read to another, together with its position as
an offset of its group: every record must come out once, whatever becomes of copiers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages, transaction_messages
from tidelog.simulation.group_messages import GROUP_KEY, TRANSACTION_KEY
from tidelog.simulation.history import History, PartitionName
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer
from tidelog.simulation.sim_consumer import SimConsumer
from tidelog.simulation.sim_coordination import Coordinator
from tidelog.simulation.sim_transactor import RETRY_S, Fenced, Transactor
from tidelog.simulation.transaction_messages import Producer
from tidelog.testing.checkers import Outcome

COPIERS: Final = "copiers"
"""The group of all copiers."""


class Writer:
    def __init__(
        self,
        transactor: Transactor,
        partitions: Sequence[PartitionName],
        random: SimRandom,
        *,
        pause_s: float,
    ) -> None:
        self._transactor = transactor
        self._partitions = partitions
        self._random = random
        self._pause_s = pause_s
        self._late: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            await self._transactor.begin_life()
            while True:
                who = self._transactor.who
                is_commit = self._random.random() < 0.7
                await self._transactor.run(self._write, commit=is_commit)
                if self._transactor.is_new and self._random.random() < 0.3:
                    self._send_late(who, is_commit=self._random.random() < 0.5)
                await asyncio.sleep(self._pause_s * self._random.random())
        except Fenced:
            return

    async def _write(self) -> None:
        for number in range(self._random.randrange(1, 5)):
            await self._transactor.write(self._random.choice(self._partitions), str(number))
            await asyncio.sleep(0.2 * self._random.random())

    def _send_late(self, who: Producer, *, is_commit: bool) -> None:
        """The end of a transaction that is over, once more, as it was or the other way round."""
        task = asyncio.get_running_loop().create_task(self._end_late(who, is_commit=is_commit))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _end_late(self, who: Producer, *, is_commit: bool) -> None:
        await asyncio.sleep(self._random.random())
        coordinator = Coordinator(self._transactor.client, TRANSACTION_KEY, who.name)
        request = transaction_messages.end(who, commit=is_commit, is_new=True)
        try:
            await coordinator.ask(request, 2.0)
        except NoAnswer:
            return


class Copier:
    def __init__(
        self,
        transactor: Transactor,
        source: PartitionName,
        target: PartitionName,
        history: History,
        random: SimRandom,
        *,
        may_be_damaged: bool,
    ) -> None:
        self.position = -1
        """Up to where everything is copied, as far as this life knows."""
        self._transactor = transactor
        self._source = source
        self._target = target
        self._history = history
        self._random = random
        self._may_be_damaged = may_be_damaged

    async def run(self) -> None:
        try:
            await self._transactor.begin_life()
            self.position = await self._committed()
            while True:
                await self._copy_some()
        except Fenced:
            self.position = -1

    async def _committed(self) -> int:
        """The offset of the group, once no transaction holds it open (KIP-447)."""
        topic, index = self._source
        coordinator = Coordinator(self._transactor.client, GROUP_KEY, COPIERS)
        request = group_messages.offset_fetch(COPIERS, topic, (index,))
        while True:
            try:
                (group,) = (await coordinator.ask(request, 5.0)).groups
            except NoAnswer:
                await asyncio.sleep(RETRY_S)
                continue
            code = ErrorCode(int(group.error_code))
            if code is ErrorCode.NONE:
                (row,) = group.topics[0].partitions
                if int(row.error_code) == ErrorCode.NONE:
                    return max(0, int(row.committed_offset))
            coordinator.heard(code)
            await asyncio.sleep(RETRY_S)

    async def _copy_some(self) -> None:
        reader = SimConsumer(
            self._transactor.client,
            self._transactor.life,
            self._source,
            self._history,
            may_be_damaged=self._may_be_damaged,
            position=self.position,
            max_wait_ms=300,
        )
        is_fine = await reader.read_some()
        if not is_fine:
            try:
                await self._transactor.client.refresh([self._source[0]])
            except NoAnswer:
                await asyncio.sleep(RETRY_S)
        if reader.position == self.position:
            await asyncio.sleep(RETRY_S)
            return
        begin, end = self.position, min(reader.position, self.position + 5)

        async def copy() -> None:
            known = self._history.reads[self._source]
            for offset in range(begin, end):
                await self._transactor.write(self._target, name_of(known[offset]))
            await self._transactor.commit_offset(COPIERS, self._source, end)

        outcome = await self._transactor.run(copy, commit=self._random.random() < 0.8)
        if outcome is Outcome.COMMITTED:
            self.position = end


def name_of(value: bytes) -> str:
    """Which record of which producer it is, without what fills it up."""
    return value.rstrip(b".").decode()
