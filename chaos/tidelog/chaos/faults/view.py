"""What a fault must know of the cluster to find whom it hits.

The default asks the nodes themselves over short connections of its own, all of them at once. It
believes those that know the latest epoch, since a leader that is cut off still names itself; and
among them the most, since any node that is cut off knows only how the ISR was. It speaks only the
Kafka protocol, so it works with any cluster of which the addresses are known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from tidelog.chaos.history import PartitionState
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.probe import (
    PartitionAnswer,
    ProbeFailed,
    ask_cluster,
    ask_coordinator,
    ask_quorum,
    ask_topics,
)

T = TypeVar("T")

_TIMEOUT_S: Final = 1.0


class ClusterView(Protocol):
    """Answers are those of this moment; None and empty mean that nobody knows."""

    def partitions(self) -> Sequence[PartitionState]:
        """Of the topics that the workload uses."""
        ...

    def groups(self) -> Sequence[str]:
        """The consumer groups that the workload uses."""
        ...

    def leader_of(self, topic: str, partition: int) -> int | None: ...

    def isr(self, topic: str, partition: int) -> Sequence[int]: ...

    def controller(self) -> int | None:
        """The leader of the metadata quorum."""
        ...

    def coordinator(self, group: str) -> int | None: ...


class AdminView:
    """Asks the nodes at ``bootstrap`` about these topics and groups."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str] = (),
        groups: Sequence[str] = (),
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._addresses = [SocketAddress.parse(part) for part in bootstrap.split(",")]
        self.topics = list(topics)
        self._groups = list(groups)
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(len(self._addresses), "chaos-view")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def partitions(self) -> Sequence[PartitionState]:
        return self.partitions_of(self.topics)

    def partitions_of(self, topics: Sequence[str]) -> list[PartitionState]:
        said: dict[tuple[str, int], list[PartitionAnswer]] = defaultdict(list)
        for answer in self._ask_all(lambda at: ask_topics(at, topics, self._timeout_s)):
            for found in answer:
                said[found.topic, found.partition].append(found)
        return [most_believed(said[place]) for place in sorted(said)]

    def groups(self) -> Sequence[str]:
        return self._groups

    def leader_of(self, topic: str, partition: int) -> int | None:
        state = self._state_of(topic, partition)
        return state.leader if state is not None else None

    def isr(self, topic: str, partition: int) -> Sequence[int]:
        state = self._state_of(topic, partition)
        return state.isr if state is not None else ()

    def controller(self) -> int | None:
        answers = self._ask_all(lambda at: ask_quorum(at, self._timeout_s))
        latest = max(answers, key=lambda answer: answer.term, default=None)
        return latest.leader_id if latest is not None and latest.leader_id >= 0 else None

    def coordinator(self, group: str) -> int | None:
        answers = self._ask_all(lambda at: ask_coordinator(at, group, self._timeout_s))
        return max(answers, key=answers.count, default=None)

    def alive(self) -> Sequence[int]:
        """The brokers that most of the nodes that answer take for alive."""
        answers = self._ask_all(lambda at: ask_cluster(at, self._timeout_s))
        sets = [tuple(sorted(answer.brokers)) for answer in answers]
        return max(sets, key=sets.count, default=())

    def is_whole(self) -> bool:
        """Every partition has a leader and all of its replicas in sync."""
        states = self.partitions()
        return all(s.leader is not None and set(s.isr) == set(s.replicas) for s in states)

    def _state_of(self, topic: str, partition: int) -> PartitionState | None:
        states = self.partitions_of([topic])
        return next((state for state in states if state.partition == partition), None)

    def _ask_all(self, ask: Callable[[SocketAddress], T]) -> list[T]:
        return [
            answer
            for answer in self._threads.map(lambda at: _ask(ask, at), self._addresses)
            if answer is not None
        ]


def _ask(ask: Callable[[SocketAddress], T], address: SocketAddress) -> T | None:
    try:
        return ask(address)
    except ProbeFailed:
        return None


def most_believed(answers: Sequence[PartitionAnswer]) -> PartitionState:
    """Of what several nodes say about one partition; with equal numbers the leader knows best."""
    votes = Counter(map(_state, answers))
    leaders = {_state(answer) for answer in answers if answer.is_own_word}
    return max(votes, key=lambda state: (state.leader_epoch, votes[state], state in leaders))


def _state(said: PartitionAnswer) -> PartitionState:
    return PartitionState(
        said.topic, said.partition, said.leader, said.leader_epoch, said.replicas,
        tuple(sorted(said.isr)),
    )  # fmt: skip
