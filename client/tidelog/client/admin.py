"""An administrator for asyncio: the calls of ``tidelog.client.sync.Admin`` on a few threads.

Administration is rare and slow, so a thread per call under way costs nothing that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, Self, TypeVar

from tidelog.client.event_loops import LoopBound
from tidelog.client.records import (
    ClusterDescription,
    ConfigEntry,
    ConfigValue,
    Edge,
    GivenOffsets,
    GroupDescription,
    GroupListing,
    OffsetAndMetadata,
    TopicDescription,
    TopicPartition,
)
from tidelog.client.settings import Value
from tidelog.client.sync.admin import Admin as SyncAdmin

P = ParamSpec("P")
T = TypeVar("T")

_CALLS_AT_ONCE: Final = 4


class Admin:
    def __init__(self, config: Mapping[str, Value]) -> None:
        self._sync = SyncAdmin(config)
        self._home = LoopBound("Admin")
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, "tidelog-client-admin")

    # --- topics -----------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic; what is not given is the cluster's default.

        ``assignments`` has the replicas of each partition, the preferred leader first.
        """
        await self._ask(
            self._sync.create_topic,
            name,
            partitions,
            replication_factor,
            configs=configs,
            assignments=assignments,
        )

    async def delete_topic(self, name: str) -> None:
        await self._ask(self._sync.delete_topic, name)

    async def create_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Give a topic more partitions, ``total`` of them; records stay where they are."""
        await self._ask(self._sync.create_partitions, topic, total, assignments)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return await self._ask(self._sync.list_topics, include_internal=include_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Its partitions and settings."""
        return await self._ask(self._sync.describe_topic, name)

    async def delete_records(
        self, before: Mapping[TopicPartition, int | Edge]
    ) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets, or END; the first offsets there are then."""
        return await self._ask(self._sync.delete_records, before)

    # --- settings of topics and brokers -----------------------------------------------------

    async def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        return await self._ask(self._sync.topic_configs, topic)

    async def broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        return await self._ask(self._sync.broker_configs, node_id)

    async def set_topic_configs(self, topic: str, configs: Mapping[str, ConfigValue]) -> None:
        """Change these settings and no others; None takes a setting back to its default."""
        await self._ask(self._sync.set_topic_configs, topic, configs)

    async def set_broker_configs(self, node_id: int, configs: Mapping[str, ConfigValue]) -> None:
        """The same of one broker; librdkafka has no name for all of them together."""
        await self._ask(self._sync.set_broker_configs, node_id, configs)

    # --- groups -----------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        return await self._ask(self._sync.list_groups)

    async def describe_group(self, group_id: str) -> GroupDescription:
        return await self._ask(self._sync.describe_group, group_id)

    async def delete_group(self, group_id: str) -> None:
        await self._ask(self._sync.delete_group, group_id)

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group committed."""
        return await self._ask(self._sync.group_offsets, group_id)

    async def set_group_offsets(self, group_id: str, offsets: GivenOffsets) -> None:
        """Where a group that has no members is to go on."""
        await self._ask(self._sync.set_group_offsets, group_id, offsets)

    # --- the cluster ------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        return await self._ask(self._sync.describe_cluster)

    # --- the end ----------------------------------------------------------------------------

    async def close(self) -> None:
        self._home.require()
        self._sync.close()
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        self._sync.__enter__()
        self._home.require()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = self._home.require()
        self._sync.__enter__()  # closed ones say so before a thread is asked for
        return await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))
