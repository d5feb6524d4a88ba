"""The settings that decisions depend on, and their effective values for a topic.

A topic's own value wins over the cluster's dynamic default, which wins over what this controller
was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.ids import NO_NODE, NodeId
from tidelog.kernel.settings import Settings

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
FLUSH_POLICY: Final = "flush.policy"
PAGE_CACHE: Final = "page-cache"
ELR_FEATURE: Final = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    ELR_FEATURE: (0, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}
"""The feature levels that this version of Tidelog can run."""


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """What this controller was told when it started."""

    cluster_id: str
    node_id: NodeId = NO_NODE
    settings: Settings = field(default_factory=Settings)
    supported_features: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: SUPPORTED_FEATURES
    )

    @property
    def default_partitions(self) -> int:
        return self.settings.get_int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.settings.get_int("default.replication.factor")

    @property
    def may_delete_topics(self) -> bool:
        return self.settings.get_bool("delete.topic.enable")


def elr_enabled(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are kept (KIP-966)."""
    return image.features.get(ELR_FEATURE, 0) >= 1


def min_insync_replicas(image: MetadataImage, policy: ControllerPolicy, topic: str) -> int:
    text = _dynamic(image, topic, MIN_INSYNC_REPLICAS, MIN_INSYNC_REPLICAS)
    return int(text) if text is not None else policy.settings.get_int(MIN_INSYNC_REPLICAS)


def unclean_election_allowed(image: MetadataImage, policy: ControllerPolicy, topic: str) -> bool:
    text = _dynamic(image, topic, UNCLEAN_ELECTION, UNCLEAN_ELECTION)
    if text is None:
        return policy.settings.get_bool(UNCLEAN_ELECTION)
    return text.strip().lower() == "true"


def trusts_page_cache(image: MetadataImage, policy: ControllerPolicy, topic: str) -> bool:
    """Whether an acknowledgement does not mean fsynced, so that a crash may cost data."""
    text = _dynamic(image, topic, FLUSH_POLICY, "log.flush.policy")
    value = text if text is not None else policy.settings.get_str("log.flush.policy")
    return value.strip() == PAGE_CACHE


def _dynamic(image: MetadataImage, topic: str, name: str, broker_name: str) -> str | None:
    own = image.config(ResourceType.TOPIC, topic).get(name)
    if own is not None:
        return own
    return image.config(ResourceType.BROKER, CLUSTER_DEFAULT).get(broker_name)
