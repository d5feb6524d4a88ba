"""The topics of a run: made before it, and removed after it where the cluster stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos.run_options import RunFailed
from tidelog.chaos.workloads.stage import TopicPlan, client_settings

_CALL_S: Final = 30.0
_CALL_MS: Final = 30_000
_REPLICAS: Final = 3


def create_topics(bootstrap: str, topics: Sequence[TopicPlan], nodes: int) -> None:
    """Three replicas each, or as many as there are nodes; waits until all have a leader."""
    admin = _admin(bootstrap)
    wanted = [
        NewTopic(t.name, t.partitions, min(_REPLICAS, nodes), config=dict(t.settings))
        for t in topics
    ]
    asked = admin.create_topics(wanted, operation_timeout=_CALL_S, request_timeout=_CALL_S)
    for name, answer in asked.items():
        try:
            answer.result(_CALL_S)
        except KafkaException as error:
            raise RunFailed(f"topic {name} cannot be made: {error.args[0].str()}") from None
    _wait_for_leaders(admin, topics)


def remove_topics(bootstrap: str, topics: Sequence[TopicPlan]) -> list[str]:
    """What could not be removed, and why."""
    asked = _admin(bootstrap).delete_topics([t.name for t in topics], request_timeout=_CALL_S)
    problems = []
    for name, answer in asked.items():
        try:
            answer.result(_CALL_S)
        except KafkaException as error:
            problems.append(f"topic {name} is left behind: {error.args[0].str()}")
    return problems


def _admin(bootstrap: str) -> AdminClient:
    """Patient: nothing is broken while it is used, and asking twice would find the topic made."""
    return AdminClient(client_settings(bootstrap, "chaos-admin", socket_timeout_ms=_CALL_MS))


def _wait_for_leaders(admin: AdminClient, topics: Sequence[TopicPlan]) -> None:
    deadline = time.monotonic() + _CALL_S
    while True:
        try:
            known = admin.list_topics(timeout=5).topics
        except KafkaException:
            known = {}
        waiting = [t.name for t in topics if not _has_leaders(known.get(t.name), t.partitions)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise RunFailed(f"{', '.join(waiting)}: no leader {_CALL_S:g} s after it was made")
        time.sleep(0.05)


def _has_leaders(topic: object, partitions: int) -> bool:
    found = getattr(topic, "partitions", {})
    return len(found) == partitions and all(p.leader >= 0 for p in found.values())
