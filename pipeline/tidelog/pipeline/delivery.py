"""Which batch goes out next, and what an answer to one means: the producer without its sockets.

Batches of a place carry sequence numbers, so that a broker stores each once and in order. Up to
``MAX_IN_FLIGHT`` of them are under way at a time, because a broker remembers as many (KIP-98). If
one of them is refused for the moment, those behind it are refused too, for being out of order. The
place then pauses until all its answers are in, and what was refused goes out again in its order,
each batch as it was: a batch that is cut differently is not known as the same. It goes out alone,
because one that was stored all the same must not be forgotten for others that overtook it.

The first batch of a place goes alone, too. Of a producer that has stored nothing there a broker
takes any sequence number; one that begins to lead between the first batch and the second would
refuse the one and store the other.

Owner: one task's producer. Time comes in from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.pipeline.errors import BrokerRefused, BrokerUnavailable, Fenced
from tidelog.pipeline.planner import dashed
from tidelog.pipeline.positions import Place
from tidelog.pipeline.produce_message import Produced
from tidelog.wire.batch import MAX_SEQUENCE

MAX_IN_FLIGHT: Final = 5

_STORED: Final = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
_FENCED: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
_TOO_LARGE: Final = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch on its way."""

    place: Place
    number: int
    """Counts the batches of the place."""
    batch: bytes
    since_s: float


class Delivery:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._numbers: dict[Place, int] = {}
        self._sequences: dict[Place, int] = {}
        self._waiting: dict[Place, deque[Parcel]] = {}
        self._under_way: dict[Place, set[int]] = {}
        self._paused: set[Place] = set()
        """Places of which a batch was refused, or goes out again, while others are under way."""
        self._known: set[Place] = set()
        """Places where a batch was stored, so that their leaders know the producer."""
        self._first_new: dict[Place, int] = {}
        """The number of the first batch that was never sent."""

    @property
    def waiting(self) -> int:
        """How many batches are to be sent, now or again."""
        return sum(map(len, self._waiting.values()))

    @property
    def places(self) -> list[Place]:
        """Where batches are to be sent."""
        return [place for place, parcels in self._waiting.items() if parcels]

    def next_sequence(self, place: Place, records: int) -> int:
        """Of the first record of a batch that ``add`` will bring next."""
        first = self._sequences.get(place, 0)
        self._sequences[place] = (first + records) % (MAX_SEQUENCE + 1)
        return first

    def add(self, place: Place, batch: bytes, now_s: float) -> None:
        number = self._numbers.get(place, 0)
        self._numbers[place] = number + 1
        self._waiting.setdefault(place, deque()).append(Parcel(place, number, batch, now_s))

    def take(self, places: Collection[Place]) -> list[Parcel]:
        """The next request for one broker: at most one batch for each of its places."""
        taken: list[Parcel] = []
        for place in places:
            waiting = self._waiting.get(place)
            if waiting and self._may_go(waiting[0]):
                parcel = waiting.popleft()
                self._under_way.setdefault(place, set()).add(parcel.number)
                if parcel.number < self._first_new.get(place, 0):
                    self._paused.add(place)
                else:
                    self._first_new[place] = parcel.number + 1
                taken.append(parcel)
        return taken

    def _may_go(self, parcel: Parcel) -> bool:
        under_way = self._under_way.get(parcel.place)
        is_free = parcel.place in self._known and parcel.place not in self._paused
        return not under_way or (is_free and len(under_way) < MAX_IN_FLIGHT)

    def answered(
        self, parcels: Collection[Parcel], results: Mapping[Place, Produced], now_s: float
    ) -> bool:
        """True if leaders should be asked for again."""
        should_ask = False
        for parcel in parcels:
            self._under_way[parcel.place].discard(parcel.number)
            result = results.get(
                parcel.place, Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not in the answer")
            )
            if result.error in _STORED:
                self._known.add(parcel.place)
            else:
                self._on_refusal(parcel, result, now_s)
                should_ask = True
            self._resume_if_quiet(parcel.place)
        return should_ask

    def lost(self, parcels: Collection[Parcel], why: str, now_s: float) -> None:
        """No answer: whether they are stored is unknown, so they go out again."""
        for parcel in parcels:
            self._under_way[parcel.place].discard(parcel.number)
            self._again(parcel, why, now_s)
            self._resume_if_quiet(parcel.place)

    def give_up_if_late(self, now_s: float, why: str) -> None:
        """Of what waits, because nobody leads its place."""
        for parcels in self._waiting.values():
            if parcels:
                self._raise_if_late(parcels[0], why, now_s)

    def _on_refusal(self, parcel: Parcel, result: Produced, now_s: float) -> None:
        code = result.error
        said = result.message or code.message
        where = dashed(parcel.place)
        is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and any(
            other.number < parcel.number for other in self._waiting.get(parcel.place, ())
        )
        if code.retriable or is_behind:
            self._again(parcel, said, now_s)
        elif code in _FENCED:
            raise Fenced(f"{where}: {said} ({code.name}): another task or driver took over")
        elif code in _TOO_LARGE:
            raise BrokerRefused(
                f"{where}: a batch of {len(parcel.batch)} bytes is above the topic's "
                f"max.message.bytes; make kafka.batch.size or the rows smaller ({code.name})"
            )
        else:
            raise BrokerRefused(f"{where}: {said} ({code.name})")

    def _again(self, parcel: Parcel, why: str, now_s: float) -> None:
        self._raise_if_late(parcel, why, now_s)
        self._paused.add(parcel.place)
        waiting = self._waiting.setdefault(parcel.place, deque())
        at = sum(1 for other in waiting if other.number < parcel.number)
        waiting.insert(at, parcel)

    def _resume_if_quiet(self, place: Place) -> None:
        if not self._under_way[place]:
            self._paused.discard(place)

    def _raise_if_late(self, parcel: Parcel, why: str, now_s: float) -> None:
        if (now_s - parcel.since_s) * 1000 >= self._timeout_ms:
            raise BrokerUnavailable(
                f"{dashed(parcel.place)}: a batch was not stored within {self._timeout_ms} ms "
                f"(kafka.delivery.timeout.ms): {why}"
            )
