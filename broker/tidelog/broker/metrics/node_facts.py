"""A running node as the metrics and the JSON see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.controller_role import ControllerRole
from tidelog.broker.metrics.facts import (
    Readiness,
)
from tidelog.broker.node import Node
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.quorum.meters import QuorumMeters
from tidelog.controller.raft.node import QuorumStatus
from tidelog.controller.service.meters import ControllerMeters
from tidelog.kernel.ids import NodeId
from tidelog.kernel.meters import Spread
from tidelog.kernel.ports import Disk
from tidelog.kernel.real import OsDisk

if TYPE_CHECKING:  # a node that is only a controller does not load what brokers need
    from tidelog.broker.broker_role import BrokerRole
    from tidelog.broker.metrics.broker_facts import BrokerFacts

_NO_DATA: Final = "the metadata has not reached this broker's registration yet"


class ControllerFacts:
    """A ``ControllerView``."""

    def __init__(self, role: ControllerRole) -> None:
        self._role = role

    @property
    def is_active(self) -> bool:
        return self._role.controller.is_active

    @property
    def image(self) -> MetadataImage:
        return self._role.controller.committed

    @property
    def meters(self) -> ControllerMeters:
        return self._role.controller.meters

    @property
    def quorum_meters(self) -> QuorumMeters:
        return self._role.quorum.meters

    @property
    def quorum(self) -> QuorumStatus | None:
        raft = self._role.quorum.raft
        return None if raft is None else raft.status


class NodeFacts:
    """A ``NodeView``."""

    def __init__(self, node: Node, cluster_id: str, disk: Disk) -> None:
        self._node = node
        self._disk = disk
        self.cluster_id = cluster_id

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    @property
    def roles(self) -> tuple[str, ...]:
        return self._node.roles

    @property
    def broker(self) -> BrokerFacts | None:
        if (role := self._node.broker) is None:
            return None
        from tidelog.broker.metrics.broker_facts import BrokerFacts

        return BrokerFacts(role, self._disk)

    @property
    def controller(self) -> ControllerFacts | None:
        role = self._node.controller
        return None if role is None else ControllerFacts(role)

    @property
    def image(self) -> MetadataImage:
        if self._node.broker is not None:
            return self._node.broker.client.feed.image
        if self._node.controller is not None:
            return self._node.controller.controller.committed
        return MetadataImage()

    @property
    def active_controller(self) -> NodeId | None:
        if self._node.controller is not None:
            return self._node.controller.quorum.leader_id
        return None if self._node.broker is None else self._node.broker.client.active_controller

    @property
    def sync_durations_ms(self) -> Spread | None:
        return self._disk.sync_times.durations_ms if isinstance(self._disk, OsDisk) else None

    def readiness(self) -> Readiness:
        reasons: list[str] = []
        if "controller" in self.roles:
            reasons += _not_ready_controller(self._node.controller)
        if "broker" in self.roles:
            reasons += _not_ready_broker(self._node.broker)
        return Readiness(tuple(reasons))


def _not_ready_controller(role: ControllerRole | None) -> list[str]:
    if role is None or role.quorum.raft is None:
        return ["the controller has not started yet"]
    if role.quorum.leader_id is None:
        return ["the quorum has no leader that this node knows of"]
    return []


def _not_ready_broker(role: BrokerRole | None) -> list[str]:
    """Registered, caught up with the metadata, unfenced, in service: in that order."""
    if role is None:
        return ["the broker has not started yet"]
    client = role.client
    epoch = client.lifecycle.epoch
    if epoch is None:
        return ["the broker is not registered: it recovers its logs, or finds no controller"]
    if client.feed.image.offset < epoch:
        return [_NO_DATA]
    if client.state is not BrokerState.RUNNING:
        return [f"the broker is {client.state.name.lower().replace('_', ' ')}"]
    registration = client.feed.image.brokers.get(role.context.node_id)
    if client.lifecycle.is_fenced or registration is None or registration.fenced:
        return ["the broker is fenced"]
    if (silent_ms := client.silence_ms()) is not None:
        return [f"no controller has answered for {silent_ms / 1000:.1f} s"]
    return []
