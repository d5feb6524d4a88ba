"""An administrator of a cluster: topics, settings, groups; each call waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
)
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

from tidelog.client.checks import (
    checked_mapping,
    checked_name,
    checked_number,
    checked_offsets,
    checked_partition,
)
from tidelog.client.config import read_config
from tidelog.client.errors import (
    ClientClosed,
    RequestFailed,
    WrongType,
    from_exception,
    not_made,
    request_failed,
    timed_out,
)
from tidelog.client.records import (
    END,
    ClusterDescription,
    ConfigEntry,
    ConfigValue,
    Edge,
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
from tidelog.client.settings import INT_MAX, Role, Value
from tidelog.client.transacting import rd_offsets
from tidelog.client.troubles import Troubles

T = TypeVar("T")

_BROKER_DEFAULT: Final = -1
_MOST: Final = 2**15 - 1
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
            raise not_made(error, "the administrator could not be made") from None

    # --- topics -----------------------------------------------------------------------------

    def create_topic(
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
        shape: dict[str, Any] = {
            "num_partitions": _or_default("partitions", partitions, INT_MAX),
            "replication_factor": _or_default("replication_factor", replication_factor, _MOST),
        }
        if assignments is not None:
            if partitions is not None or replication_factor is not None:
                raise WrongType(
                    "assignments say how many partitions and replicas there are; give them, or "
                    "partitions and replication_factor"
                )
            replicas = _assignments(assignments)
            shape = {"num_partitions": len(replicas), "replica_assignment": replicas}
        settings = _config_texts(configs or {})
        topic = NewTopic(checked_name("name", name), config=settings, **shape)
        asked = _within_limits(lambda: self._rd.create_topics([topic], **self._times()))
        self._wait(asked[name], f"topic {name!r} could not be created")

    def delete_topic(self, name: str) -> None:
        asked = self._rd.delete_topics([checked_name("name", name)], **self._times())
        self._wait(asked[name], f"topic {name!r} could not be deleted")

    def create_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Give a topic more partitions, ``total`` of them; records stay where they are."""
        checked_name("topic", topic)
        checked_number("total", total, 1, INT_MAX)
        more = {} if assignments is None else {"replica_assignment": _assignments(assignments)}
        wanted = NewPartitions(topic, total, **more)
        asked = _within_limits(lambda: self._rd.create_partitions([wanted], **self._times()))
        self._wait(asked[topic], f"topic {topic!r} could not be given {total} partitions")

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        with self._troubles.answered("topics could not be listed", self._timeout_s, self._tried):
            found = self._rd.list_topics(timeout=self._timeout_s)
        return sorted(name for name in found.topics if include_internal or not _is_internal(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Its partitions and settings."""
        checked_name("name", name)
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

    def delete_records(
        self, before: Mapping[TopicPartition, int | Edge]
    ) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets, or END; the first offsets there are then."""
        wanted = [
            RdTopicPartition(
                *checked_partition(one),
                OFFSET_END if offset is END else checked_number("offset", offset),
            )
            for one, offset in checked_mapping("before", before).items()
        ]
        asked = self._rd.delete_records(wanted, **self._times())
        return {
            TopicPartition(one.topic, one.partition): int(
                self._wait(answer, f"records of {one.topic} could not be deleted").low_watermark
            )
            for one, answer in asked.items()
        }

    # --- settings of topics and brokers -----------------------------------------------------

    def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        checked_name("topic", topic)
        what = f"settings of topic {topic!r} could not be read"
        return self._read_configs(self._ask_configs(ResourceType.TOPIC, topic), what)

    def broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        checked_number("node_id", node_id, high=INT_MAX)
        what = f"settings of broker {node_id} could not be read"
        return self._read_configs(self._ask_configs(ResourceType.BROKER, str(node_id)), what)

    def set_topic_configs(self, topic: str, configs: Mapping[str, ConfigValue]) -> None:
        """Change these settings and no others; None takes a setting back to its default."""
        self._set_configs(ResourceType.TOPIC, checked_name("topic", topic), configs)

    def set_broker_configs(self, node_id: int, configs: Mapping[str, ConfigValue]) -> None:
        """The same of one broker; librdkafka has no name for all of them together."""
        number = checked_number("node_id", node_id, high=INT_MAX)
        self._set_configs(ResourceType.BROKER, str(number), configs)

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
        self, kind: ResourceType, name: str, configs: Mapping[str, ConfigValue]
    ) -> None:
        wanted = checked_mapping("configs", configs)
        if not wanted:
            return
        texts = _config_texts({key: value for key, value in wanted.items() if value is not None})
        entries = [
            RdConfigEntry(
                checked_name("configs", key),
                texts.get(key, ""),
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for key, value in wanted.items()
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
        asked = self._rd.describe_consumer_groups(
            [checked_name("group_id", group_id)], **self._time()
        )
        found: Any = self._wait(asked[group_id], f"group {group_id!r} could not be described")
        return GroupDescription(
            found.group_id,
            found.state.name,
            found.partition_assignor or "",
            None if found.coordinator is None else _node(found.coordinator),
            tuple(_member(one) for one in found.members),
        )

    def delete_group(self, group_id: str) -> None:
        asked = self._rd.delete_consumer_groups(
            [checked_name("group_id", group_id)], **self._time()
        )
        self._wait(asked[group_id], f"group {group_id!r} could not be deleted")

    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group committed."""
        wanted = [ConsumerGroupTopicPartitions(checked_name("group_id", group_id))]
        asked = self._rd.list_consumer_group_offsets(wanted, **self._time())
        what = f"offsets of group {group_id!r} could not be read"
        return self._offsets(self._wait(asked[group_id], what), what)

    def set_group_offsets(self, group_id: str, offsets: GivenOffsets) -> None:
        """Where a group that has no members is to go on."""
        given = ConsumerGroupTopicPartitions(
            checked_name("group_id", group_id), rd_offsets(checked_offsets(offsets))
        )
        asked = self._rd.alter_consumer_group_offsets([given], **self._time())
        what = f"offsets of group {group_id!r} could not be set"
        self._offsets(self._wait(asked[group_id], what), what)

    def _offsets(self, answer: Any, what: str) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for one in answer.topic_partitions:
            if one.error is not None:
                raise request_failed(one.error, what, self._tried)
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
        return from_exception(error, what, self._tried)

    def _tried(self) -> str:
        self._rd.poll(0)  # reports of failed connections come with it
        return self._troubles.look()

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        self._known_rd = None

    def __enter__(self) -> Self:
        _ = self._rd
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _or_default(what: str, value: int | None, high: int) -> int:
    return _BROKER_DEFAULT if value is None else checked_number(what, value, 1, high)


def _assignments(given: Sequence[Sequence[int]]) -> list[list[int]]:
    if not isinstance(given, list | tuple) or not given:
        raise WrongType(f"assignments: a list of replicas per partition is wanted, not {given!r}")
    for replicas in given:
        if not isinstance(replicas, list | tuple) or not replicas:
            raise WrongType(f"assignments: ids of brokers per partition are wanted: {given!r}")
    return [
        [checked_number("assignments", node, high=INT_MAX) for node in replicas]
        for replicas in given
    ]


def _config_texts(configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    return {
        checked_name("configs", name): _config_text(name, value)
        for name, value in checked_mapping("configs", configs).items()
    }


def _config_text(name: str, value: ConfigValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise WrongType(f"{name}: text, a number, true or false is wanted, not {value!r}")


def _within_limits(ask: Callable[[], T]) -> T:
    """librdkafka has limits of its own for what it is to create."""
    try:
        return ask()
    except (TypeError, ValueError) as error:
        raise WrongType(str(error)) from None


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
