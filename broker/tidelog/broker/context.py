"""What handlers know of the node they run on and of its cluster.

``Cluster`` is the whole of what administrative handlers ask of the controllers; the node's wiring
puts the controller client behind it (``controllers``), tests a pretended cluster.

Settings are live: the cluster's dynamic values lie over those the node was started with, and a
change of them takes effect with the metadata that carries it. ``settings`` always belongs to the
current image. Who must act on a change rather than look when needed follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from immutables import Map

from tidelog.broker.advertised import ListenerView
from tidelog.broker.metrics.requests import RequestMeters
from tidelog.controller.client.answers import ForwardedRequest
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_OFFSET, NO_TIMESTAMP, DirectoryId, NodeId, Offset, TimestampMs
from tidelog.kernel.settings import InvalidSettings, Settings, TopicConfig

log = logging.getLogger(__name__)

OnSettings: TypeAlias = Callable[[Settings], None]


class ControllerRefused(Exception):
    """The active controller was not reached in time, or did not take the request at all."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message or code.message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One replica of the metadata log."""

    node_id: NodeId
    directory_id: DirectoryId
    log_end_offset: Offset = NO_OFFSET
    last_fetch_at: TimestampMs = NO_TIMESTAMP
    last_caught_up_at: TimestampMs = NO_TIMESTAMP
    address: SocketAddress | None = None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: NodeId
    leader_epoch: int
    high_watermark: Offset
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...] = ()


class Cluster(Protocol):
    """What a broker asks of its cluster.

    Calls go to the active controller, wherever that is by the time, and are repeated until they are
    answered or the time is up. Without an answer they raise ``ControllerRefused``.
    """

    @property
    def image(self) -> MetadataImage:
        """The newest metadata this broker has applied."""
        ...

    def is_in_touch(self) -> bool:
        """Whether the metadata is as fresh as heartbeats are: nobody was elected unheard."""
        ...

    def is_cut_off(self) -> bool:
        """Whether no active controller has answered for a session: if there is one, it takes this
        broker for lost, and others lead what it led."""
        ...

    async def forward(self, request: ForwardedRequest, *, timeout_ms: float) -> bytes:
        """The body of the response for the client."""
        ...

    async def allocate_producer_ids(self, *, timeout_ms: float) -> range:
        """Ids that nobody else gets."""
        ...

    async def describe_quorum(self, *, timeout_ms: float) -> QuorumDescription: ...


class BrokerContext:
    """This broker among the others."""

    def __init__(
        self, node_id: NodeId, cluster_id: str, cluster: Cluster, settings: Settings
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.cluster = cluster
        self.requests = RequestMeters()
        self._started_with = settings
        self._settings = settings
        self._dynamic: tuple[Map[str, str], Map[str, str]] = (Map(), Map())
        self._followers: list[OnSettings] = []
        self._views: dict[str, ListenerView] = {}

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    @property
    def settings(self) -> Settings:
        """What this broker runs with now."""
        self.refresh()
        return self._settings

    def follow(self, on_settings: OnSettings) -> None:
        """Be called with the settings as they are, and again whenever they have changed."""
        current = self.settings
        self._followers.append(on_settings)
        on_settings(current)

    def refresh(self) -> None:
        """Look whether the image has other settings. Cheap: for every new image, so that
        followers hear of a change at once."""
        image = self.cluster.image
        cluster = image.config(ResourceType.BROKER, CLUSTER_DEFAULT)
        own = image.config(ResourceType.BROKER, str(self.node_id))
        if self._is_known(cluster, own):
            return
        self._dynamic = (cluster, own)
        self._settings = self._started_with.with_dynamic(
            cluster=self._readable(cluster, is_cluster_wide=True),
            broker=self._readable(own, is_cluster_wide=False),
        )
        for on_settings in self._followers:
            on_settings(self._settings)

    def _readable(self, values: Map[str, str], *, is_cluster_wide: bool) -> dict[str, str]:
        """Without what a controller of another version let through: a node must not stop over
        it, and the rest must take effect all the same."""
        readable: dict[str, str] = {}
        for name, text in sorted(values.items()):
            one = {name: text}
            cluster, broker = (one, {}) if is_cluster_wide else ({}, one)
            try:
                self._started_with.with_dynamic(cluster=cluster, broker=broker)
            except InvalidSettings as invalid:
                log.error("a dynamic setting has no effect: %s", "; ".join(invalid.errors))
            else:
                readable[name] = text
        return readable

    def _is_known(self, cluster: Map[str, str], own: Map[str, str]) -> bool:
        known = self._dynamic
        return (cluster is known[0] or cluster == known[0]) and (own is known[1] or own == known[1])

    def topic_config(self, topic: str) -> TopicConfig:
        """What a topic runs with on this broker."""
        own = self.cluster.image.config(ResourceType.TOPIC, topic)
        try:
            return TopicConfig.resolve(own, self.settings)
        except InvalidSettings as invalid:
            log.error("settings of topic %s have no effect: %s", topic, "; ".join(invalid.errors))
            return TopicConfig.resolve({}, self.settings)

    def view(self, listener_name: str) -> ListenerView:
        """The brokers as clients of this listener see them."""
        brokers = self.cluster.image.brokers
        known = self._views.get(listener_name)
        if known is None or known.brokers is not brokers:
            known = self._views[listener_name] = ListenerView(brokers, listener_name)
        return known
