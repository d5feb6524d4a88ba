"""Everything a node gets from outside, in one hand: the real machine, or a simulated one."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.kernel.addresses import AddressBook
from tidelog.kernel.listener import Listener
from tidelog.kernel.peers import Peers, PeerServer
from tidelog.kernel.ports import Clock, Disk, Offload, Random, Workers


@dataclass(frozen=True, slots=True)
class NodePorts:
    clock: Clock
    random: Random
    disk: Disk
    offload: Offload
    peers: Peers
    peer_server: PeerServer
    addresses: AddressBook
    """Shared with ``peers``: what brokers register is dialled from then on."""
    listener: Listener
    acknowledges_early: bool = False
    """Answers acks=all as if it were acks=1: for showing that tests notice what is lost by it."""
    workers: Workers | None = None
    """Processes that clean logs; without them it is done by ``offload``."""
