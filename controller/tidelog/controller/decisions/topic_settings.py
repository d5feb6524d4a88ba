"""Whether a topic may have these settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.settings import InvalidSettings, Settings, TopicConfig


def settings_of_cluster(image: MetadataImage, policy: ControllerPolicy) -> Settings:
    """What topics inherit: this controller's settings under the cluster's dynamic ones."""
    cluster = image.config(ResourceType.BROKER, CLUSTER_DEFAULT)
    return _under(policy.settings, tuple(cluster.items())) if cluster else policy.settings


@lru_cache(maxsize=8)
def _under(settings: Settings, cluster: tuple[tuple[str, str], ...]) -> Settings:
    """Resolving the whole table takes as long as the rest of a decision; it rarely changes."""
    return settings.with_dynamic(cluster=dict(cluster))


def check_topic_settings(
    image: MetadataImage, policy: ControllerPolicy, own: Mapping[str, str]
) -> None:
    """Raises Refused with the first objection to a topic that has exactly these settings."""
    if not own:
        return
    try:
        TopicConfig.resolve(own, settings_of_cluster(image, policy))
    except InvalidSettings as invalid:
        raise Refused(ErrorCode.INVALID_CONFIG, invalid.errors[0]) from invalid
