"""Three members on loopback with everything real: gRPC, files, fsync, threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from quorum_loopback import LoopbackCluster

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


def test_three_members_elect_commit_survive_and_come_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        cluster = LoopbackCluster(tmp_path)
        await cluster.start()
        for number in range(20):
            await cluster.propose(f"first-{number}", 5)
        leader = cluster.active
        assert leader is not None
        await cluster.kill(leader.node_id)
        for number in range(20):
            last = await cluster.propose(f"second-{number}", 5)
        await cluster.start(leader.node_id)
        last = await cluster.propose("third", 1000)
        members = list(cluster.members.values())
        await cluster.until(lambda: all(m.machine.next_offset > last for m in members))
        histories = [member.machine.history for member in members]
        assert histories[0] == histories[1] == histories[2]
        assert len(set(histories[0])) >= 100 + 100 + 1000
        assert not any(member.fatal for member in members)
        await cluster.close()

    run(main())


def test_all_members_stop_in_good_order_and_start_again(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        cluster = LoopbackCluster(tmp_path)
        await cluster.start()
        await cluster.propose("before", 10)
        await cluster.close()
        await cluster.start()
        last = await cluster.propose("after", 10)
        members = list(cluster.members.values())
        await cluster.until(lambda: all(m.machine.next_offset > last for m in members))
        assert all(len(member.machine.history) == 20 for member in members)
        await cluster.close()

    run(main())
