"""Clients of a simulated cluster, each a process on a host of its own.

A client ends because it is done, because it is killed, or because of what it found: that goes to
the handler of the loop, where ``Defects`` sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.sim_client import SimKafkaClient
from tidelog.simulation.sim_node import client_address

T = TypeVar("T")


class Clients:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def are_done(self) -> bool:
        return all(task.done() for task in self._tasks)

    def client(self, name: str) -> SimKafkaClient:
        """On a host that runs nothing now."""
        process = self._cluster.network.boot(name)
        brokers = [client_address(node) for node in self._cluster.plan.brokers]
        return SimKafkaClient(self._cluster.network, process, brokers)

    def run(self, client: SimKafkaClient, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = client.start(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"client {task.get_name()}", "exception": error}
            self._cluster.world.loop.call_exception_handler(context)

    async def do(self, name: str, work: Callable[[SimKafkaClient], Awaitable[T]]) -> T:
        """Something that a client does once, from outside of it."""
        client = self.client(name)
        found: list[T] = []

        async def do_it() -> None:
            found.append(await work(client))

        await asyncio.wait([task := client.start(do_it())])
        await self._cluster.network.kill(name)
        task.result()
        return found[0]
