"""How long brokers have been away, and which of their replicas must start over (DESIGN 2.4).

A replica that is away holds back the removal of tombstones on the others. After
`compaction.absent.replica.max.ms` it stops counting and restarts empty. The metadata log has no
times in it, so every controller counts for itself, from the first time it saw the broker away: a
controller that was just started waits longer than it had to, never shorter.

Owner: the controller. Times are milliseconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.decisions.topic_settings import settings_of_cluster
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import LEADERLESS, ResourceType
from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings import InvalidSettings, Settings, TopicConfig


class Absences:
    def __init__(self) -> None:
        self._since_ms: dict[NodeId, float] = {}

    def returned(self, broker: NodeId) -> None:
        """The broker was unfenced, if only for a moment."""
        self._since_ms.pop(broker, None)

    def observe(self, now_ms: float, image: MetadataImage) -> None:
        """Note who is away now."""
        away = {broker for broker in image.topics.indexes.holding if _is_away(image, broker)}
        for broker in list(self._since_ms):
            if broker not in away:
                del self._since_ms[broker]
        for broker in away:
            self._since_ms.setdefault(broker, now_ms)

    def longer_than(self, now_ms: float, duration_ms: float) -> list[NodeId]:
        """Brokers that have been away for so long, as far as this controller knows."""
        return sorted(b for b, since in self._since_ms.items() if now_ms - since >= duration_ms)


def _is_away(image: MetadataImage, broker: NodeId) -> bool:
    registration = image.brokers.get(broker)
    return broker != LEADERLESS and (registration is None or registration.fenced)


def replicas_to_restart(
    image: MetadataImage, policy: ControllerPolicy, broker: NodeId
) -> Iterator[PartitionRef]:
    """The broker's replicas of compacted topics that still count although it is away."""
    cluster = settings_of_cluster(image, policy)
    for ref in image.topics.held_by(broker):
        topic = image.topics.by_id[ref.topic_id]
        state = topic.partitions[ref.partition]
        if broker in state.restarts_empty or broker in state.isr or not state.isr:
            continue
        if _is_compacted(image, topic.name, cluster):
            yield ref


def _is_compacted(image: MetadataImage, topic: str, cluster: Settings) -> bool:
    own = image.config(ResourceType.TOPIC, topic)
    try:
        return TopicConfig.resolve(own, cluster).is_compacted
    except InvalidSettings:
        return False  # a newer node let it through; nothing is discarded on a guess
