"""The brokers as a task needs them: which partitions there are, who leads them, their offsets.

Leaders change and brokers restart; such answers are asked for again until the time that the job
gives an answer is over. An error that asking again does not mend is raised at once.

Owner: one reader or writer, which closes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.connection import NO_ANSWER, Connection
from tidelog.pipeline.errors import BrokerRefused, BrokerUnavailable
from tidelog.pipeline.planner import dashed
from tidelog.pipeline.positions import Place
from tidelog.pipeline.source_options import Selection

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

T = TypeVar("T")

_PAUSE_S: Final = 0.1
_CONNECT_S: Final = 5.0
_NOT_YET_KNOWN_S: Final = 2.0
"""A topic that was just made is not known to every broker at once."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What one Metadata answer said."""

    brokers: Mapping[int, SocketAddress]
    leaders: Mapping[Place, int]
    missing: frozenset[str]
    """Topics that were asked for and do not exist."""
    internal: frozenset[str]
    """Those that brokers keep for themselves; a pattern never means them."""


class AskAgain(Exception):
    """An answer that another try may better."""


class ClusterOptions(Protocol):
    """What a source and a sink have in common."""

    @property
    def bootstrap(self) -> tuple[SocketAddress, ...]: ...
    @property
    def client_id(self) -> str: ...
    @property
    def request_timeout_ms(self) -> int: ...


class Cluster:
    def __init__(
        self,
        options: ClusterOptions,
        *,
        read_committed: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._read_committed = read_committed
        self._monotonic = monotonic
        self._sleep = sleep
        self._connections: dict[SocketAddress, Connection] = {}
        self._brokers: tuple[SocketAddress, ...] = ()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- questions ---------------------------------------------------------------------

    def places(self, selection: Selection, *, must_exist: bool) -> frozenset[Place]:
        """The partitions that are meant. With ``must_exist`` a missing one is an error."""
        deadline = self._monotonic() + _NOT_YET_KNOWN_S
        while True:
            chosen, missing = _chosen(selection, self.layout(_topics(selection)))
            if not missing or not must_exist:
                return chosen
            if self._monotonic() >= deadline:
                raise BrokerRefused(f"{', '.join(missing)} does not exist")
            self._sleep(_PAUSE_S)

    def layout(self, topics: Collection[str] | None) -> Layout:
        """Of these topics, or of all."""
        return self.patiently("Metadata", lambda: self.layout_now(topics))

    def partition_count(self, topic: str) -> int:
        """An error if there is no such topic."""
        return len(self.places(Selection((topic,), None, None), must_exist=True))

    def offsets(self, wanted: Mapping[Place, int]) -> dict[Place, int]:
        """ListOffsets: −2 earliest, −1 latest, else the first record of that time or later."""
        found: dict[Place, int] = {}

        def ask() -> dict[Place, int]:
            left = {place: moment for place, moment in wanted.items() if place not in found}
            self._ask_leaders(left, found)
            return found

        return dict(sorted(self.patiently("ListOffsets", ask).items())) if wanted else {}

    def leader(self, place: Place) -> Connection:
        """A connection to the one who leads it now."""

        def find() -> Connection:
            layout = self.layout_now([place[0]])
            if place not in layout.leaders:
                raise AskAgain(f"{dashed(place)} does not exist")
            return self.connection(self._leader_address(layout, place))

        return self.patiently(f"the leader of {dashed(place)}", find)

    # --- trying again ------------------------------------------------------------------

    def patiently(self, what: str, ask: Callable[[], T]) -> T:
        deadline = self._monotonic() + self._options.request_timeout_ms / 1000
        while True:
            try:
                return ask()
            except (*NO_ANSWER, AskAgain) as error:
                if not isinstance(error, AskAgain):
                    self.close()
                if self._monotonic() >= deadline:
                    raise BrokerUnavailable(
                        f"{what}: no answer within {self._options.request_timeout_ms} ms "
                        f"(kafka.request.timeout.ms) from {self._names()}: {error}"
                    ) from error
            self._sleep(_PAUSE_S)

    def connection(self, address: SocketAddress) -> Connection:
        if address not in self._connections:
            self._connections[address] = self.new_connection(address)
        return self._connections[address]

    def new_connection(self, address: SocketAddress) -> Connection:
        """One that is the caller's, who may have several questions under way on it."""
        timeout_s = max(_CONNECT_S, self._options.request_timeout_ms / 1000)
        return Connection(address, self._options.client_id, timeout_s)

    def drop(self, connection: Connection) -> None:
        """It failed, or holds answers that nobody wants any more."""
        connection.close()
        self._connections.pop(connection.address, None)

    def _names(self) -> str:
        return ", ".join(map(str, self._options.bootstrap))

    # --- one try -----------------------------------------------------------------------

    def any_broker(self) -> Connection:
        """The first that can be reached, known brokers before those the job named."""
        problems = []
        for address in dict.fromkeys((*self._brokers, *self._options.bootstrap)):
            try:
                return self.connection(address)
            except NO_ANSWER as error:
                problems.append(f"{address}: {error}")
        raise ConnectionError("; ".join(problems))

    def layout_now(self, topics: Collection[str] | None) -> Layout:
        """Without trying again; raises ``NO_ANSWER`` or ``AskAgain``."""
        answer = self.any_broker().ask(_metadata_request(topics))
        brokers = {int(one.node_id): SocketAddress(one.host, one.port) for one in answer.brokers}
        self._brokers = tuple(brokers.values()) or self._brokers
        leaders: dict[Place, int] = {}
        missing, internal = set(), set()
        for topic in answer.topics:
            code = ErrorCode(int(topic.error_code))
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                missing.add(str(topic.name))
                continue
            raise_on(code, f"topic {topic.name!r}")
            if topic.is_internal:
                internal.add(str(topic.name))
            for partition in topic.partitions:
                place = str(topic.name), int(partition.partition_index)
                leaders[place] = int(partition.leader_id)
        return Layout(brokers, leaders, frozenset(missing), frozenset(internal))

    def _leader_address(self, layout: Layout, place: Place) -> SocketAddress:
        leader = layout.leaders[place]
        if leader not in layout.brokers:
            raise AskAgain(f"{dashed(place)} has no leader")
        return layout.brokers[leader]

    def _ask_leaders(self, wanted: Mapping[Place, int], found: dict[Place, int]) -> None:
        layout = self.layout_now({topic for topic, _ in wanted})
        by_leader: dict[SocketAddress, dict[Place, int]] = {}
        for place, moment in wanted.items():
            if place not in layout.leaders:
                raise AskAgain(f"{dashed(place)} does not exist")
            by_leader.setdefault(self._leader_address(layout, place), {})[place] = moment
        for address, questions in by_leader.items():
            request = _list_offsets_request(questions, self._read_committed)
            for topic in self.connection(address).ask(request).topics:
                for one in topic.partitions:
                    place = str(topic.name), int(one.partition_index)
                    raise_on(ErrorCode(int(one.error_code)), dashed(place))
                    found[place] = int(one.offset)


def raise_on(code: ErrorCode, what: str) -> None:
    if code is ErrorCode.NONE:
        return
    if code.retriable:
        raise AskAgain(f"{what}: {code.message}")
    raise BrokerRefused(f"{what}: {code.message} ({code.name})")


def _topics(selection: Selection) -> tuple[str, ...] | None:
    if selection.pattern is not None:
        return None
    if selection.topics is not None:
        return selection.topics
    return tuple(sorted({topic for topic, _ in selection.places or ()}))


def _chosen(selection: Selection, layout: Layout) -> tuple[frozenset[Place], list[str]]:
    """What is there of what is meant, and the names of what is not."""
    if selection.pattern is not None:
        matches = re.compile(selection.pattern).fullmatch
        wanted = {place for place in layout.leaders if matches(place[0])}
        return frozenset(one for one in wanted if one[0] not in layout.internal), []
    if selection.places is None:
        missing = [f"topic {name!r}" for name in sorted(layout.missing)]
        return frozenset(layout.leaders), missing
    there = selection.places & layout.leaders.keys()
    return there, [f"partition {dashed(place)}" for place in sorted(selection.places - there)]


def _metadata_request(topics: Collection[str] | None) -> RequestPayload:
    from kio.schema.metadata.v7.request import MetadataRequest, MetadataRequestTopic

    asked: Any = None
    if topics is not None:
        names: list[Any] = sorted(topics)
        asked = tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False)


def _list_offsets_request(wanted: Mapping[Place, int], read_committed: bool) -> RequestPayload:
    from kio.schema.list_offsets.v5 import request as v5

    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), moment in sorted(wanted.items()):
        index: Any = partition
        timestamp: Any = moment
        by_topic.setdefault(topic, []).append(
            v5.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        )
    names: list[Any] = list(by_topic)
    consumer: Any = -1
    isolation_level: Any = int(read_committed)
    return v5.ListOffsetsRequest(
        replica_id=consumer,
        isolation_level=isolation_level,
        topics=tuple(
            v5.ListOffsetsTopic(name=name, partitions=tuple(by_topic[name])) for name in names
        ),
    )
