"""Even loads, and as much as possible where it was.

Where all subscribe alike, everybody keeps what it owns up to its quota and the rest is dealt out:
no even assignment moves fewer partitions.

Where subscriptions differ, what nobody holds goes to the least loaded who may take it; then
partitions travel from the loaded to the idle, first directly, then along chains of members, while
that makes the loads more even. That ends at the most even loads there are (cost-reducing paths:
Harvey et al., *Semi-matchings for bipartite graphs*, 2006). Partitions of one topic are alike, so
the search goes from member to topic to member and never looks at single partitions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidelog.coordinator.server_assignors.model import (
    AssignorMember,
    PartitionCounts,
    Shares,
)
from tidelog.kernel.ids import Uuid

_Topic = int
"""A topic by its place among all that are wanted: numbers are faster to compare than ids."""
_Piece = tuple[_Topic, int]
_Hands = dict[str, dict[_Topic, list[int]]]


@dataclass(frozen=True, slots=True)
class _Member:
    member_id: str
    topics: frozenset[_Topic]
    owned: dict[_Topic, frozenset[int]]


def assign_uniform(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    ordered = sorted(members, key=lambda each: each.member_id)
    if not ordered:
        return {}
    ids = sorted(topic for topic in _wanted(ordered) if counts.get(topic, 0) > 0)
    numbered = _numbered(ordered, ids)
    sizes = [counts[topic] for topic in ids]
    first = numbered[0].topics
    if all(each.topics is first or each.topics == first for each in numbered):
        dealt = _assign_alike(sizes, numbered)
    else:
        dealt = _Levelling(sizes, numbered).run()
    return {
        member_id: {ids[topic]: frozenset(mine) for topic, mine in hand.items()}
        for member_id, hand in dealt.items()
    }


def _wanted(members: list[AssignorMember]) -> set[Uuid]:
    kinds = {id(each.topics): each.topics for each in members}
    return set[Uuid]().union(*kinds.values())


def _numbered(members: list[AssignorMember], ids: list[Uuid]) -> list[_Member]:
    number = {topic: index for index, topic in enumerate(ids)}
    kinds: dict[int, frozenset[_Topic]] = {}
    found = []
    for member in members:
        kind = kinds.get(id(member.topics))
        if kind is None:
            kind = frozenset(number[topic] for topic in member.topics if topic in number)
            kinds[id(member.topics)] = kind
        owned = {number[topic]: each for topic, each in member.owned.items() if topic in number}
        found.append(_Member(member.member_id, kind, owned))
    return found


def _rightful(counts: list[int], members: list[_Member]) -> dict[str, list[_Piece]]:
    """What each member owned and may keep, in order; of two claims to one partition the first."""
    taken: dict[_Topic, set[int]] = {}
    kept: dict[str, list[_Piece]] = {}
    for member in members:
        mine: list[_Piece] = []
        for topic in sorted(member.owned):
            if topic not in member.topics:
                continue
            others = taken.setdefault(topic, set())
            found = sorted(each for each in member.owned[topic] if 0 <= each < counts[topic])
            mine += [(topic, each) for each in found if each not in others]
            others.update(found)
        kept[member.member_id] = mine
    return kept


# --- all subscribe alike ---------------------------------------------------------------------


def _assign_alike(counts: list[int], members: list[_Member]) -> _Hands:
    smaller, ones_more = divmod(sum(counts), len(members))
    kept = _rightful(counts, members)
    # Who already holds more than the smaller quota is the first to keep the larger one.
    rich = [member_id for member_id, mine in kept.items() if len(mine) > smaller]
    larger = set(rich[:ones_more])
    for member_id, mine in kept.items():
        del mine[smaller + (member_id in larger) :]
    rest = _unheld(counts, kept)
    for mine in kept.values():
        while len(mine) < smaller:
            mine.append(next(rest))
    left_over = ones_more - len(larger)
    for mine in [mine for mine in kept.values() if len(mine) == smaller][:left_over]:
        mine.append(next(rest))
    return {member_id: _by_topic(mine) for member_id, mine in kept.items()}


def _unheld(counts: list[int], kept: dict[str, list[_Piece]]) -> Iterator[_Piece]:
    held = {piece for mine in kept.values() for piece in mine}
    for topic, count in enumerate(counts):
        yield from ((topic, index) for index in range(count) if (topic, index) not in held)


def _by_topic(pieces: Iterable[_Piece]) -> dict[_Topic, list[int]]:
    found: dict[_Topic, list[int]] = {}
    for topic, index in pieces:
        found.setdefault(topic, []).append(index)
    return found


# --- subscriptions differ --------------------------------------------------------------------


class _Levelling:
    """Member and topic are the nodes; a member that holds some of a topic can pass it on."""

    def __init__(self, counts: list[int], members: list[_Member]) -> None:
        self._takers: list[list[str]] = [[] for _ in counts]
        for member in members:
            for topic in member.topics:
                self._takers[topic].append(member.member_id)
        self._topics_of = {each.member_id: sorted(each.topics) for each in members}
        self._hands: _Hands = {each.member_id: {} for each in members}
        self._load = dict.fromkeys(self._hands, 0)
        self._born: dict[_Piece, str] = {}
        """Who held a partition before: it is the one to be left there, or to come home."""
        kept = _rightful(counts, members)
        for member_id, mine in kept.items():
            for topic, index in mine:
                self._born[topic, index] = member_id
                self._give(member_id, topic, index)
        self._rest = list(_unheld(counts, kept))

    def run(self) -> _Hands:
        self._hand_out()
        self._level_directly()
        while path := self._levelling_path():
            self._follow(path)
        return self._hands

    def _give(self, member_id: str, topic: _Topic, index: int) -> None:
        self._hands[member_id].setdefault(topic, []).append(index)
        self._load[member_id] += 1

    def _move(self, giver: str, topic: _Topic, receiver: str) -> None:
        """One partition of the topic: the receiver's own, else one that is not the giver's own."""
        mine = self._hands[giver][topic]
        born = self._born
        best = min(
            range(len(mine)),
            key=lambda at: (
                born.get((topic, mine[at])) != receiver,
                born.get((topic, mine[at])) == giver,
                -mine[at],
            ),
        )
        index = mine.pop(best)
        if not mine:
            del self._hands[giver][topic]
        self._load[giver] -= 1
        self._give(receiver, topic, index)

    def _hand_out(self) -> None:
        """What few can take goes first, while those few still have room."""
        heaps: dict[_Topic, list[tuple[int, str]]] = {}
        load = self._load
        for topic, index in sorted(self._rest, key=lambda each: (len(self._takers[each[0]]), each)):
            heap = heaps.get(topic)
            if heap is None:
                heap = heaps[topic] = [(load[who], who) for who in self._takers[topic]]
                heapq.heapify(heap)
            while heap[0][0] != load[heap[0][1]]:  # it got something of another topic meanwhile
                heapq.heapreplace(heap, (load[heap[0][1]], heap[0][1]))
            receiver = heap[0][1]
            self._give(receiver, topic, index)
            heapq.heapreplace(heap, (load[receiver], receiver))

    def _level_directly(self) -> None:
        """The idlest takes from the most loaded it shares a topic with, over and over."""
        load = self._load
        richest: list[list[tuple[int, str]]] = []
        for topic, takers in enumerate(self._takers):
            givers = [(-load[who], who) for who in takers if topic in self._hands[who]]
            heapq.heapify(givers)
            richest.append(givers)
        queue = [(count, who) for who, count in load.items()]
        heapq.heapify(queue)
        while queue:
            count, receiver = heapq.heappop(queue)
            if count != load[receiver]:
                continue
            found = self._richest_giver(receiver, richest)
            if found is None:
                continue  # only a chain can help this one
            topic, giver = found
            self._move(giver, topic, receiver)
            for held in self._hands[giver]:
                heapq.heappush(richest[held], (-load[giver], giver))
            for held in self._hands[receiver]:
                heapq.heappush(richest[held], (-load[receiver], receiver))
            heapq.heappush(queue, (load[receiver], receiver))
            heapq.heappush(queue, (load[giver], giver))

    def _richest_giver(
        self, receiver: str, richest: list[list[tuple[int, str]]]
    ) -> tuple[_Topic, str] | None:
        best: tuple[_Topic, str] | None = None
        most = self._load[receiver] + 1
        for topic in self._topics_of[receiver]:
            heap = richest[topic]
            while heap and not self._is_current(topic, heap[0]):
                heapq.heappop(heap)
            if heap and -heap[0][0] > most:
                best, most = (topic, heap[0][1]), -heap[0][0]
        return best

    def _is_current(self, topic: _Topic, entry: tuple[int, str]) -> bool:
        return -entry[0] == self._load[entry[1]] and topic in self._hands[entry[1]]

    def _levelling_path(self) -> list[tuple[str, _Topic, str]]:
        """The shortest chain of moves from a member to one that has at least two fewer, if any.

        Whoever is reached from the most loaded in vain need not be looked at again from others:
        all that it reaches is at most one below it.
        """
        load = self._load
        settled: set[str] = set()
        seen_topics: set[_Topic] = set()
        for start in sorted(load, key=lambda who: (-load[who], who)):
            if start in settled:
                continue
            settled.add(start)
            came_by: dict[str, tuple[str, _Topic]] = {}
            queue = deque([start])
            while queue:
                giver = queue.popleft()
                if load[giver] <= load[start] - 2:
                    return _path(came_by, start, giver)
                for topic in self._hands[giver]:
                    if topic in seen_topics:
                        continue
                    seen_topics.add(topic)
                    for receiver in self._takers[topic]:
                        if receiver not in settled:
                            settled.add(receiver)
                            came_by[receiver] = (giver, topic)
                            queue.append(receiver)
        return []

    def _follow(self, path: list[tuple[str, _Topic, str]]) -> None:
        for giver, topic, receiver in path:
            self._move(giver, topic, receiver)


def _path(
    came_by: dict[str, tuple[str, _Topic]], start: str, end: str
) -> list[tuple[str, _Topic, str]]:
    path = []
    while end != start:
        giver, topic = came_by[end]
        path.append((giver, topic, end))
        end = giver
    return path[::-1]
