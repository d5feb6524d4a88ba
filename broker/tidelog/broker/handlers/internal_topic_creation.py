"""Creating an internal topic when the first client looks for a coordinator.

There must be as many live brokers as the topic is to have replicas; until then clients are told to
come back. In the first seconds of a cluster not every node has registered: where brokers are
controllers too, a broker that has just started expects the other voters to turn up.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.auto_creation import TopicAutoCreation
from tidelog.broker.handlers.internal_topics import replication_factor
from tidelog.kernel.ports import Clock

_PATIENCE_MS: Final = 10_000.0
"""How long a broker that has just started expects nodes that never registered."""


class InternalTopicCreation:
    def __init__(
        self,
        context: BrokerContext,
        auto_creation: TopicAutoCreation,
        clock: Clock,
        expected_brokers: int,
    ) -> None:
        """``expected_brokers``: the nodes that belong to the cluster as far as this one knows."""
        self._context = context
        self._auto_creation = auto_creation
        self._clock = clock
        self._expected_brokers = expected_brokers
        self._patient_until_ms = clock.monotonic_ms() + _PATIENCE_MS

    def request(self, topic: str, call: Call) -> None:
        """Begin to create the topic if there are enough brokers for it."""
        brokers = self._context.image.brokers
        wanted = len(brokers)
        if self._clock.monotonic_ms() < self._patient_until_ms:
            wanted = max(wanted, self._expected_brokers)
        alive = sum(broker.is_active for broker in brokers.values())
        if alive >= replication_factor(topic, self._context.settings, wanted):
            self._auto_creation.request((topic,), call.client, call.client_id)
