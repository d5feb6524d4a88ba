"""The topics there are, as far as a coordinator has to know them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tidelog.kernel.ids import Uuid


@dataclass(frozen=True, slots=True)
class TopicInfo:
    topic_id: Uuid
    name: str
    partitions: int


class Topics(Protocol):
    """One version of the cluster's metadata; another version is another object."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""

    def named(self, name: str) -> TopicInfo | None: ...

    def with_id(self, topic_id: Uuid) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...


class KnownTopics:
    """A plain table of topics."""

    __slots__ = ("_by_id", "_by_name", "_version")

    def __init__(self, topics: Iterable[TopicInfo] = (), version: int = 0) -> None:
        self._version = version
        self._by_name = {each.name: each for each in topics}
        self._by_id = {each.topic_id: each for each in self._by_name.values()}

    @property
    def version(self) -> int:
        return self._version

    def named(self, name: str) -> TopicInfo | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: Uuid) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterator[str]:
        return iter(self._by_name)


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """One number for all that an assignment depends on: which of the topics exist, and how large.

    Stored with the group's epoch: another number means that the assignment is out of date. Zero
    where none exists. (Kafka's own number is made otherwise; a group taken over from a Kafka log is
    assigned once more.)
    """
    digest = hashlib.blake2b(digest_size=8)
    found = [info for name in sorted(set(names)) if (info := topics.named(name)) is not None]
    for info in found:
        digest.update(b"%s\0%s%d;" % (info.name.encode(), info.topic_id.raw, info.partitions))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
