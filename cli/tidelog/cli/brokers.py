"""All brokers of a cluster: a connection to each, opened when one is first needed.

A question goes to whoever can answer it: any broker, the leader of a partition, the coordinator of
a group. Who that is may change between two questions, and a coordinator may be loading; such
answers are asked for again, for as long as anybody would wait for a command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar

from tidelog.cli.ask import Connection
from tidelog.cli.failures import CommandFailed
from tidelog.cli.questions import question
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Place = tuple[str, int]
"""A topic and a partition of it."""

GROUP: Final = 0
TRANSACTION: Final = 1
NO_LEADER: Final = -1

_RETRY_S: Final = 0.2
_RETRIES: Final = 100
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    }
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerNode:
    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    @property
    def address(self) -> str:
        return str(SocketAddress(self.host, self.port))


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerNode]

    @property
    def live(self) -> dict[int, BrokerNode]:
        return {node: one for node, one in self.brokers.items() if not one.is_fenced}


class Brokers:
    """Owner: one command, which closes it."""

    def __init__(self, bootstrap: str) -> None:
        self._stack = ExitStack()
        self.any = self._stack.enter_context(Connection(bootstrap))
        self._open: dict[str, Connection] = {}
        self._description: ClusterDescription | None = None

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def describe(self) -> ClusterDescription:
        """The brokers as they were when first asked, fenced ones included."""
        if self._description is None:
            self._description = describe_cluster(self.any)
        return self._description

    def to(self, node_id: int) -> Connection:
        known = self.describe().brokers.get(node_id)
        if known is None:
            there = ", ".join(map(str, sorted(self.describe().brokers)))
            raise CommandFailed(f"there is no broker {node_id}; there are {there}")
        return self.at(known.address)

    def at(self, address: str) -> Connection:
        if address not in self._open:
            self._open[address] = self._stack.enter_context(Connection(address))
        return self._open[address]

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        return self.at(self.coordinator_node(key, kind).address)

    def coordinator_node(self, key: str, kind: int = GROUP) -> BrokerNode:
        found = patiently(
            lambda: self.any.ask(
                question(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key])
            ).coordinators[0]
        )
        fail_on(found, f"the coordinator of {key!r} is not to be found")
        return BrokerNode(int(found.node_id), str(found.host), int(found.port))

    def ask_coordinator(
        self, key: str, request: Any, answered: Callable[[Any], T], kind: int = GROUP
    ) -> T:
        """``answered`` picks the part of the answer that has an ``error_code``."""
        return patiently(lambda: answered(self.coordinator(key, kind).ask(request)))

    def leaders(self, topics: Collection[str] | None = None) -> dict[Place, int]:
        """Every partition of these topics, or of all, with its leader or ``NO_LEADER``."""
        asked = None if topics is None else [{"topic_id": None, "name": one} for one in topics]
        answer = self.any.ask(
            question(
                ApiKey.METADATA,
                12,
                topics=asked,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        found: dict[Place, int] = {}
        for topic in answer.topics:
            if int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise CommandFailed(f"topic {topic.name!r} does not exist; tidelog topic list")
            fail_on(topic, f"topic {topic.name!r}")
            for partition in topic.partitions:
                place = str(topic.name), int(partition.partition_index)
                found[place] = int(partition.leader_id)
        return dict(sorted(found.items()))


def describe_cluster(connection: Connection) -> ClusterDescription:
    answer = connection.ask(
        question(
            ApiKey.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=True,
        )
    )
    fail_on(answer, "the cluster cannot be described")
    brokers = sorted(
        (
            BrokerNode(int(one.broker_id), str(one.host), int(one.port), one.rack, one.is_fenced)
            for one in answer.brokers
        ),
        key=lambda one: one.node_id,
    )
    return ClusterDescription(
        str(answer.cluster_id), int(answer.controller_id), {one.node_id: one for one in brokers}
    )


def patiently(ask: Callable[[], T]) -> T:
    """Ask again while the answer is that nobody is in charge yet."""
    for _ in range(_RETRIES):
        result = ask()
        if int(getattr(result, "error_code", ErrorCode.NONE)) not in _PASSING:
            return result
        time.sleep(_RETRY_S)
    return result


def error_text(result: Any) -> str | None:
    """What an answer complains about in its two usual fields; None if it does not."""
    code = ErrorCode(int(result.error_code))
    if code == ErrorCode.NONE:
        return None
    return str(getattr(result, "error_message", None) or code.message)


def fail_on(result: Any, what: str) -> None:
    if (text := error_text(result)) is not None:
        raise CommandFailed(f"{what}: {text}")


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def by_leader(leaders: Mapping[Place, int], places: Iterable[Place]) -> dict[int, list[Place]]:
    """Places without a leader are left out."""
    grouped: dict[int, list[Place]] = {}
    for place in sorted(places):
        if leaders.get(place, NO_LEADER) != NO_LEADER:
            grouped.setdefault(leaders[place], []).append(place)
    return grouped


def parse_topic_partitions(entries: Sequence[str], option: str = "--topic") -> dict[str, list[int]]:
    """``t`` is all partitions (an empty list), ``t:0,2`` only those."""
    from tidelog.cli.failures import WrongUse

    wanted: dict[str, list[int]] = {}
    for entry in entries:
        topic, colon, numbers = entry.partition(":")
        parts = [part.strip() for part in numbers.split(",")] if colon else []
        if not topic or not all(part.isascii() and part.isdigit() for part in parts):
            raise WrongUse(f"{option} {entry}: a topic, or a topic and partitions as in orders:0,1")
        wanted.setdefault(topic, []).extend(int(part) for part in parts)
    return wanted


def chosen_places(brokers: Brokers, wanted: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    """The partitions that are meant, with their leaders; names those that do not exist."""
    there = brokers.leaders(list(wanted))
    chosen = {}
    for topic, partitions in wanted.items():
        missing = [one for one in partitions if (topic, one) not in there]
        if missing:
            count = sum(place[0] == topic for place in there)
            raise CommandFailed(f"topic {topic!r} has no partition {missing[0]}; it has {count}")
        for place, leader in there.items():
            if place[0] == topic and (not partitions or place[1] in partitions):
                chosen[place] = leader
    return dict(sorted(chosen.items()))
