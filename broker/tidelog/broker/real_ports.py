"""The ports of a real machine for one node, opened and closed in the right order."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidelog.broker.directories import all_directories
from tidelog.broker.ports import NodePorts
from tidelog.kernel.addresses import AddressBook
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.real import OsDisk, SystemClock, SystemRandom, ThreadOffload
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import endpoints
from tidelog.storage.format import NotFormatted, required_identity
from tidelog.storage.node_files import CorruptNodeFile, InconsistentDirectory

log = logging.getLogger(__name__)

CLEANER_WORKER: Final = "tidelog.storage.cleaner.worker"


class CannotStart(Exception):
    """What the node was given does not allow it to start; the text says what to do."""


@asynccontextmanager
async def open_ports(
    settings: Settings, *, offload_threads: int
) -> AsyncIterator[tuple[PeerIdentity, NodePorts]]:
    from tidelog.kernel.real.listener import SocketSizes, TcpListener
    from tidelog.kernel.real.peer_server import GrpcPeerServer
    from tidelog.kernel.real.peers import GrpcPeers
    from tidelog.kernel.real.process_offload import WorkerProcesses

    disk, clock, acknowledges_early = _disk_and_clock(settings)
    random = SystemRandom()
    identity = _identity(settings, disk, random)
    told = endpoints(settings)
    addresses = AddressBook(told.voters, told.dial_overrides)
    peers = GrpcPeers(identity, addresses)
    offload = ThreadOffload(offload_threads)
    sizes = SocketSizes(
        settings.get_int("socket.listen.backlog.size"),
        _unless_left_to_system(settings.get_int("socket.receive.buffer.bytes")),
        _unless_left_to_system(settings.get_int("socket.send.buffer.bytes")),
    )
    # A worker opens files by itself, so a disk that takes orders would not be asked.
    workers = WorkerProcesses(CLEANER_WORKER) if type(disk) is OsDisk else None
    try:
        yield (
            identity,
            NodePorts(
                clock,
                random,
                disk,
                offload,
                peers,
                GrpcPeerServer(identity),
                addresses,
                TcpListener(offload, sizes),
                acknowledges_early,
                workers,
            ),
        )
    finally:
        if workers is not None:
            await workers.close()
        await peers.close()
        offload.close()


def _unless_left_to_system(size: int) -> int | None:
    return None if size == -1 else size


def _disk_and_clock(settings: Settings) -> tuple[OsDisk, SystemClock, bool]:
    """Those of the machine, unless a test of broken clusters has set its switches; and whether
    acks=all is answered early, which is one of them."""
    if not os.environ.get("TIDELOG_UNSAFE_TESTING"):
        return OsDisk(), SystemClock(), False
    from tidelog.kernel.real import rigged_disk, rigging

    try:
        on = rigging.switches(os.environ)
    except rigging.UnknownSwitch as unknown:
        raise CannotStart(str(unknown)) from unknown
    log.warning(
        "THIS NODE IS NOT SAFE: %s=%s, for tests only", rigging.SWITCHES, ",".join(sorted(on))
    )
    acknowledges_early = rigging.ACK_BEFORE_REPLICATION in on
    if rigging.RIGGED not in on:
        return OsDisk(), SystemClock(), acknowledges_early
    first = all_directories(settings)[0]
    orders = rigging.Orders(first)
    disk = rigged_disk.RiggedDisk(rigged_disk.Journal(first), orders)
    return disk, rigging.RiggedClock(orders), acknowledges_early


def _identity(settings: Settings, disk: OsDisk, random: SystemRandom) -> PeerIdentity:
    node_id = NodeId(settings.get_int("node.id"))
    try:
        meta = required_identity(disk, all_directories(settings))
    except (NotFormatted, CorruptNodeFile, InconsistentDirectory, OSError) as problem:
        raise CannotStart(str(problem)) from problem
    if meta.node_id != node_id:
        raise CannotStart(
            f"the data belongs to node {meta.node_id}, but node.id is {node_id}; "
            "use the node's own data directory, or change node.id back"
        )
    return PeerIdentity(node_id, meta.cluster_id, IncarnationId(Uuid(random.randbytes(16))))
