"""A leader that cannot be fetched from is told of once, however often it is tried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import PeerRefused, StreamReset
from tidelog.kernel.settings import Settings
from tidelog.replication.fetch_answer import FetchAnswer
from tidelog.replication.fetcher import LeaderLink
from tidelog.replication.settings import ReplicationSettings
from tidelog.replication.throttle import ReplicationQuota
from tidelog.simulation import World, run_simulation

GONE, REFUSED, ANSWER = StreamReset("gone"), PeerRefused("NOT_NOW", "no"), FetchAnswer()


class _Stream:
    def __init__(self, script: Sequence[Any]) -> None:
        self._script = list(script)

    async def receive(self) -> Any:
        await asyncio.sleep(0.01)
        if not self._script:
            return ANSWER
        said = self._script.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    def offer(self, _: Any) -> bool:
        return True

    def close(self) -> None: ...


class _Peers:
    """One script for each stream; the last one goes on for ever."""

    def __init__(self, *scripts: Sequence[Any]) -> None:
        self.scripts = list(scripts)

    def open_stream(self, *_: Any) -> Any:
        return _Stream(self.scripts.pop(0) if self.scripts else ())


def told(caplog: pytest.LogCaptureFixture, *scripts: Sequence[Any]) -> list[str]:
    async def main(world: World) -> None:
        host: Any = SimpleNamespace(
            node_id=NodeId(1),
            settings=ReplicationSettings.of(Settings()),
            follower_quota=ReplicationQuota(0),
            partitions={},
            now_ms=world.clock.monotonic_ms,
            broker_epoch=lambda: 1,
        )
        link = LeaderLink(host, _Peers(*scripts), NodeId(2))  # type: ignore[arg-type]
        await asyncio.sleep(5)
        ended = link.stop()
        await asyncio.wait([ended])

    with caplog.at_level(logging.INFO, logger="tidelog.replication.fetcher"):
        run_simulation(main, seed=1)
    return [record.getMessage() for record in caplog.records]


def test_an_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, [ANSWER, GONE], *[[GONE]] * 50, [REFUSED], [ANSWER, ANSWER, GONE], [GONE])
    outage = "node 2: the fetch stream ended: gone; trying again until it answers"
    recovery = "node 2 can be fetched from again"
    assert lines == [outage, recovery, outage, recovery]


def test_a_leader_that_answers_is_nothing_to_tell_of(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog) == []


def test_a_refusal_is_told_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, *[[REFUSED]] * 5)
    assert lines[0].startswith("node 2: it refuses to be fetched from: ") and len(lines) == 2
    assert caplog.records[0].levelno == logging.WARNING
