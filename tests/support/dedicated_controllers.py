"""Three processes that are controllers only, and brokers that are a few lines of this process.

What the quorum does can be seen and measured without logs, replication or clients getting in the
way: the brokers here register, heartbeat and follow the metadata as real ones do, and pass on
requests to create topics, but hold nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.client.controller_client import ControllerClient
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES
from tidelog.controller.decisions.registration import RegistrationRequest
from tidelog.controller.metadata.records import Endpoint, FeatureRange
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import DirectoryId, IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.real import OsDisk, SystemClock, SystemRandom
from tidelog.kernel.real.peers import GrpcPeers
from tidelog.kernel.settings import Settings
from tidelog.storage.format import format_directories, random_uuid
from tidelog.testing.local_node import LocalNode
from tidelog.testing.ports import Ports
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.responses import decode_response

CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (11, 12, 13)
SERVER: Final = (sys.executable, "-m", "tidelog.broker")
_CREATE_TOPICS_VERSION: Final = 7
_LOOPBACK: Final = "127.0.0.1"


class ControllerTrio:
    """The processes; use as a context manager."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._settings = settings or {}
        self.data_dir = Path(tempfile.mkdtemp(prefix="tidelog-controllers-"))
        self.cluster_id = str(random_uuid(SystemRandom()))
        ports = Ports()
        self.nodes = {
            number: LocalNode(
                number,
                SocketAddress(_LOOPBACK, 0),
                ports.draw(_LOOPBACK),
                self.data_dir / f"node-{number}",
                self.data_dir / f"node-{number}.properties",
            )
            for number in CONTROLLERS
        }
        self.voters = {NodeId(number): node.rpc for number, node in self.nodes.items()}

    def __enter__(self) -> ControllerTrio:
        for node in self.nodes.values():
            self._prepare(node)
            self.start_node(node.node_id)
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.ask_to_end()
        for node in self.nodes.values():
            node.wait_for_end(30)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def start_node(self, number: int) -> None:
        self.nodes[number].start(SERVER, lambda _node, _line: None)

    def kill(self, number: int) -> None:
        self.nodes[number].kill()
        self.nodes[number].wait_for_end(30)

    def stop_node(self, number: int) -> None:
        self.nodes[number].ask_to_end()
        self.nodes[number].wait_for_end(30)

    def resident_mb(self, number: int) -> float:
        process = self.nodes[number].process
        status = Path(f"/proc/{process.pid if process else 0}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def _prepare(self, node: LocalNode) -> None:
        format_directories(
            OsDisk(),
            [str(node.data_dir)],
            SystemRandom(),
            cluster_id=self.cluster_id,
            node_id=NodeId(node.node_id),
        )
        lines = {
            "process.roles": "controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(f"{n}@{a}" for n, a in self.voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{node.rpc}",
            "log.dirs": str(node.data_dir),
            **self._settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        node.config.write_text(text, encoding="utf-8")


class ScriptedBroker:
    """One broker of this process: alive, and otherwise idle."""

    def __init__(self, number: int, trio: ControllerTrio) -> None:
        self._identity = PeerIdentity(
            NodeId(number), trio.cluster_id, IncarnationId(Uuid(SystemRandom().randbytes(16)))
        )
        self._peers = GrpcPeers(self._identity, AddressBook(trio.voters))
        self.client = ControllerClient(
            NodeId(number),
            peers=self._peers,
            controllers=sorted(trio.voters),
            clock=SystemClock(),
            random=SystemRandom(),
            settings=Settings.of({}),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedBroker]:
        work = asyncio.create_task(self.client.run())
        try:
            async with asyncio.timeout(60):
                await self.client.register(self._registration())
                self.client.become_ready()
                await self.client.wait_for_state(BrokerState.RUNNING)
            yield self
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._peers.close()

    def _registration(self) -> RegistrationRequest:
        number = self._identity.node_id
        return RegistrationRequest(
            number,
            self._identity.cluster_id,
            self._identity.incarnation_id,
            (DirectoryId(Uuid(SystemRandom().randbytes(16))),),
            (Endpoint("PLAINTEXT", _LOOPBACK, 20_000 + number),),
            tuple(FeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()),
            peer_endpoint=Endpoint("CONTROLLER", _LOOPBACK, 30_000 + number),
        )

    async def create_topic(
        self, name: str, partitions: int, factor: int = 3, *, timeout_ms: float = 10_000
    ) -> ErrorCode:
        """NONE once the topic is committed. Raises what the client raises without an answer."""
        request = ForwardedRequest(
            int(ApiKey.CREATE_TOPICS),
            _CREATE_TOPICS_VERSION,
            _create_topics_body([(name, partitions, factor)], int(timeout_ms)),
        )
        answer = await self.client.forward(request, timeout_ms=timeout_ms)
        if isinstance(answer, ApiError):
            return answer.code
        response: Any = decode_response(
            ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, memoryview(answer)
        )
        return ErrorCode(int(response.topics[0].error_code))

    async def leader(self) -> tuple[int, int]:
        """The active controller and its term, as it says itself."""
        answer = await self.client.describe_quorum(timeout_ms=60_000)
        return answer.active_controller.node_id, answer.active_controller.term


@asynccontextmanager
async def scripted_brokers(trio: ControllerTrio) -> AsyncIterator[list[ScriptedBroker]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(ScriptedBroker(number, trio).running())
            for number in BROKERS
        ]


def _create_topics_body(topics: Sequence[tuple[str, int, int]], timeout_ms: int) -> bytes:
    parts = [bytes([len(topics) + 1])]
    for name, partitions, factor in topics:
        text = name.encode("ascii")
        parts.append(bytes([len(text) + 1]) + text + struct.pack(">ih", partitions, factor))
        parts.append(b"\x01\x01\x00")  # no assignments, no settings, no tags
    parts.append(struct.pack(">i?", timeout_ms, False) + b"\x00")
    return b"".join(parts)
