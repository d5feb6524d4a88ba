"""An administrator of a cluster: topics, settings, groups; each call waits for the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ConfigEntry as RdConfigEntry

from tidelog.client.config import read_config
from tidelog.client.errors import (
    ClientClosed,
    RequestFailed,
    WrongType,
    from_exception,
    request_failed,
    timed_out,
)
from tidelog.client.records import (
    ClusterDescription,
    ConfigEntry,
    GivenOffsets,
    GroupDescription,
    GroupListing,
    GroupMember,
    Node,
    OffsetAndMetadata,
    PartitionInfo,
    TopicDescription,
    TopicPartition,
)
from tidelog.client.settings import Role, Value
from tidelog.client.transacting import rd_offsets
from tidelog.client.troubles import Troubles

T = TypeVar("T")

_BROKER_DEFAULT: Final = -1
_GRACE_S: Final = 1.0


class Admin:
    def __init__(self, config: Mapping[str, Value]) -> None:
        self._config = read_config(Role.ADMIN, config)
        self._troubles = Troubles(self._config)
        self._timeout_s = self._config.seconds("default.api.timeout.ms")
        try:
            self._known_rd: AdminClient | None = AdminClient(
                {**self._config.librdkafka, **self._troubles.options()}
            )
        except KafkaException as error:
            raise from_exception(error, "the administrator could not be made") from None

    # --- topics -----------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic; what is not given is the cluster's default.

        ``assignments`` has the replicas of each partition, the preferred leader first.
        """
        more: dict[str, Any] = {}
        if assignments is not None:
            more["replica_assignment"] = [list(replicas) for replicas in assignments]
        else:
            more["replication_factor"] = (
                _BROKER_DEFAULT if replication_factor is None else replication_factor
            )
        count = len(assignments) if assignments is not None else partitions
        topic = _of(
            "topic",
            lambda: NewTopic(
                _text("name", name),
                num_partitions=_BROKER_DEFAULT if count is None else count,
                config=dict(configs or {}),
                **more,
            ),
        )
        asked = self._rd.create_topics([topic], **self._times())
        self._wait(asked[name], f"topic {name!r} could not be created")

    def delete_topic(self, name: str) -> None:
        asked = self._rd.delete_topics([_text("name", name)], **self._times())
        self._wait(asked[name], f"topic {name!r} could not be deleted")

    def create_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Give a topic more partitions, ``total`` of them; records stay where they are."""
        more = {} if assignments is None else {"replica_assignment": [list(a) for a in assignments]}
        wanted = _of("partitions", lambda: NewPartitions(_text("topic", topic), total, **more))
        asked = self._rd.create_partitions([wanted], **self._times())
        self._wait(asked[topic], f"topic {topic!r} could not be given {total} partitions")

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        try:
            found = self._rd.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise self._failed(error, "topics could not be listed") from None
        return sorted(name for name in found.topics if include_internal or not _is_internal(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Its partitions and settings."""
        _text("name", name)
        what = f"topic {name!r} could not be described"
        asked = self._rd.describe_topics(TopicCollection([name]), **self._time())
        configs = self._ask_configs(ResourceType.TOPIC, name)
        found: Any = self._wait(asked[name], what)
        return TopicDescription(
            found.name,
            str(found.topic_id),
            bool(found.is_internal),
            tuple(_partition(one) for one in sorted(found.partitions, key=lambda p: int(p.id))),
            self._read_configs(configs, what),
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets; the first offsets there are then."""
        wanted = [RdTopicPartition(*one, offset) for one, offset in before.items()]
        asked = self._rd.delete_records(wanted, **self._times())
        return {
            TopicPartition(one.topic, one.partition): int(
                self._wait(answer, f"records of {one.topic} could not be deleted").low_watermark
            )
            for one, answer in asked.items()
        }

    # --- settings of topics and brokers -----------------------------------------------------

    def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        what = f"settings of topic {topic!r} could not be read"
        return self._read_configs(self._ask_configs(ResourceType.TOPIC, topic), what)

    def broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        what = f"settings of broker {node_id} could not be read"
        return self._read_configs(self._ask_configs(ResourceType.BROKER, str(node_id)), what)

    def set_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change these settings and no others; None takes a setting back to its default."""
        self._set_configs(ResourceType.TOPIC, _text("topic", topic), configs)

    def set_broker_configs(self, node_id: int | None, configs: Mapping[str, str | None]) -> None:
        """Of one broker, or of all (None)."""
        self._set_configs(ResourceType.BROKER, "" if node_id is None else str(node_id), configs)

    def _ask_configs(self, kind: ResourceType, name: str) -> Future[Any]:
        asked = self._rd.describe_configs([ConfigResource(kind, name)], **self._time())
        (answer,) = asked.values()
        return answer

    def _read_configs(self, answer: Future[Any], what: str) -> dict[str, ConfigEntry]:
        return {
            name: ConfigEntry(
                name,
                entry.value,
                entry.source == ConfigSource.DEFAULT_CONFIG.value or bool(entry.is_default),
                bool(entry.is_read_only),
                bool(entry.is_sensitive),
            )
            for name, entry in sorted(self._wait(answer, what).items())
        }

    def _set_configs(
        self, kind: ResourceType, name: str, configs: Mapping[str, str | None]
    ) -> None:
        entries = [
            RdConfigEntry(
                key,
                value if value is not None else "",
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for key, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        (answer,) = self._rd.incremental_alter_configs([resource], **self._time()).values()
        self._wait(answer, f"settings of {kind.name.lower()} {name!r} could not be changed")

    # --- groups -----------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        asked = self._rd.list_consumer_groups(**self._time())
        found: Any = self._wait(asked, "groups could not be listed")
        if found.errors:
            raise self._failed(found.errors[0], "groups could not be listed")
        return sorted(
            (GroupListing(one.group_id, one.state.name) for one in found.valid),
            key=lambda one: one.group_id,
        )

    def describe_group(self, group_id: str) -> GroupDescription:
        asked = self._rd.describe_consumer_groups([_text("group_id", group_id)], **self._time())
        found: Any = self._wait(asked[group_id], f"group {group_id!r} could not be described")
        return GroupDescription(
            found.group_id,
            found.state.name,
            found.partition_assignor or "",
            None if found.coordinator is None else _node(found.coordinator),
            tuple(_member(one) for one in found.members),
        )

    def delete_group(self, group_id: str) -> None:
        asked = self._rd.delete_consumer_groups([_text("group_id", group_id)], **self._time())
        self._wait(asked[group_id], f"group {group_id!r} could not be deleted")

    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group committed."""
        wanted = [ConsumerGroupTopicPartitions(_text("group_id", group_id))]
        asked = self._rd.list_consumer_group_offsets(wanted, **self._time())
        what = f"offsets of group {group_id!r} could not be read"
        return self._offsets(self._wait(asked[group_id], what), what)

    def set_group_offsets(self, group_id: str, offsets: GivenOffsets) -> None:
        """Where a group that has no members is to go on."""
        given = ConsumerGroupTopicPartitions(_text("group_id", group_id), rd_offsets(offsets))
        asked = self._rd.alter_consumer_group_offsets([given], **self._time())
        what = f"offsets of group {group_id!r} could not be set"
        self._offsets(self._wait(asked[group_id], what), what)

    def _offsets(self, answer: Any, what: str) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for one in answer.topic_partitions:
            if one.error is not None:
                raise request_failed(one.error, what, self._troubles.tried())
            if one.offset >= 0:
                known = OffsetAndMetadata(one.offset, one.metadata or "")
                found[TopicPartition(one.topic, one.partition)] = known
        return found

    # --- the cluster ------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        asked = self._rd.describe_cluster(**self._time())
        found: Any = self._wait(asked, "the cluster could not be described")
        return ClusterDescription(
            found.cluster_id or "",
            None if found.controller is None else int(found.controller.id),
            tuple(sorted((_node(one) for one in found.nodes), key=lambda node: node.node_id)),
        )

    # --- asking -----------------------------------------------------------------------------

    @property
    def _rd(self) -> AdminClient:
        if self._known_rd is None:
            raise ClientClosed("the administrator is closed")
        return self._known_rd

    def _time(self) -> dict[str, Any]:
        return {"request_timeout": self._timeout_s}

    def _times(self) -> dict[str, Any]:
        """Also for the cluster to have done it."""
        return {"request_timeout": self._timeout_s, "operation_timeout": self._timeout_s}

    def _wait(self, answer: Future[T], what: str) -> T:
        try:
            return answer.result(self._timeout_s + _GRACE_S)
        except KafkaException as error:
            raise self._failed(error, what) from None
        except TimeoutError:
            raise timed_out(what, self._timeout_s, self._tried()) from None

    def _failed(self, error: KafkaException, what: str) -> RequestFailed:
        return from_exception(error, what, self._tried())

    def _tried(self) -> str:
        self._rd.poll(0)  # reports of failed connections come with it
        return self._troubles.tried()

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        self._known_rd = None

    def __enter__(self) -> Self:
        _ = self._rd
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(what: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise WrongType(f"{what}: a name is wanted, not {value!r}")
    return value


def _of(what: str, make: Any) -> Any:
    """librdkafka checks numbers and types of what it is to create."""
    try:
        return make()
    except (TypeError, ValueError, KafkaException) as error:
        raise WrongType(f"{what}: {error}") from None


def _is_internal(name: str) -> bool:
    return name.startswith("__")


def _node(node: Any) -> Node:
    return Node(int(node.id), node.host, int(node.port), getattr(node, "rack", None))


def _partition(one: Any) -> PartitionInfo:
    leader = None if one.leader is None or int(one.leader.id) < 0 else int(one.leader.id)
    return PartitionInfo(
        int(one.id),
        leader,
        tuple(int(node.id) for node in one.replicas),
        tuple(int(node.id) for node in one.isr),
    )


def _member(one: Any) -> GroupMember:
    assigned: Iterable[Any] = one.assignment.topic_partitions if one.assignment else ()
    return GroupMember(
        one.member_id,
        one.client_id,
        one.host,
        one.group_instance_id,
        frozenset(TopicPartition(tp.topic, tp.partition) for tp in assigned),
    )
