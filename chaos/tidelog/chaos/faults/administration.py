"""Topics made, grown, altered and deleted while a workload runs, with a stock admin client."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tidelog.chaos.faults.schedule import PlannedFault
from tidelog.chaos.targets.base import TargetError

_TIMEOUT_S: Final = 15.0
_MAX_PARTITIONS: Final = 4


def administer(bootstrap: str, planned: PlannedFault, undo: ExitStack) -> str:
    """Make a topic, add partitions to it and alter it; ``undo`` deletes it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"chaos-administration-{planned.number}-{planned.draw}"
    before = 1 + planned.draw % _MAX_PARTITIONS
    undo.callback(_delete, admin, topic)
    _await("create", admin.create_topics([NewTopic(topic, before)], request_timeout=_TIMEOUT_S))
    more = [NewPartitions(topic, before + 2)]
    _await("add partitions to", admin.create_partitions(more, request_timeout=_TIMEOUT_S))
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    _await("alter", admin.incremental_alter_configs([altered], request_timeout=_TIMEOUT_S))
    return f"created {topic}, grew it from {before} to {before + 2} partitions, altered it"


def _delete(admin: AdminClient, topic: str) -> None:
    _await("delete", admin.delete_topics([topic], request_timeout=_TIMEOUT_S))


def _await(verb: str, answers: Mapping[Any, Future[None]]) -> None:
    for what, answer in answers.items():
        try:
            answer.result(_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            raise TargetError(f"could not {verb} {what}: {error}") from error
