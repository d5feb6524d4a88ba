"""Whether two metadata images are equal, asked again and again of images that grow side by side.

Images are immutable and share what did not change with the images they were made from. So what was
found equal once, in two members of a quorum, need not be compared again in their next images.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from immutables import Map

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.topics import PartitionIndexes, TopicImage, TopicsImage

_PAIRS_KEPT: Final = 10_000
_PARTS: Final[dict[type, tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (MetadataImage, TopicsImage, TopicImage, PartitionIndexes)
}
_LARGE: Final = frozenset((Map, *_PARTS))


class ImageEquality:
    """The same as ``==``; pairs that were equal are kept, so that their addresses stay theirs."""

    def __init__(self) -> None:
        self._equal: dict[tuple[int, int], tuple[object, object]] = {}

    def holds(self, one: object, other: object) -> bool:
        if one is other:
            return True
        if type(one) not in _LARGE or type(one) is not type(other):
            return one == other
        pair = (id(one), id(other))
        if pair not in self._equal:
            if not self._compare(one, other):
                return False
            self._equal[pair] = (one, other)
            if len(self._equal) > _PAIRS_KEPT:
                del self._equal[next(iter(self._equal))]
        return True

    def _compare(self, one: object, other: object) -> bool:
        """Part by part, so that parts that were equal are recognised."""
        if isinstance(one, Map) and isinstance(other, Map):
            if not _holds_parts(one):
                return one == other
            return len(one) == len(other) and all(
                key in other and self.holds(part, other[key]) for key, part in one.items()
            )
        names = _PARTS[type(one)]
        return all(self.holds(getattr(one, name), getattr(other, name)) for name in names)


def _holds_parts(values: Map[object, object]) -> bool:
    """Whether its values are large themselves; they are all of one type."""
    first = next(iter(values.values()), None)
    return isinstance(first, Map | TopicImage)
