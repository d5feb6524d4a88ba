"""Decisions and the errors they answer with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import MetadataRecord
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset

R = TypeVar("R", covariant=True)

MAX_RECORDS_PER_DECISION: Final = 10_000
"""Records of one decision are appended in one batch; a batch has a bounded size."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error code with words for people; NONE means success."""

    code: ErrorCode
    message: str | None = None

    @property
    def is_error(self) -> bool:
        return self.code is not ErrorCode.NONE


NO_ERROR: Final = ApiError(ErrorCode.NONE)


class Refused(Exception):
    """Ends the consideration of one item of a request; becomes its ApiError."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message or code.message}")
        self.error = ApiError(code, message)


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The records to append, all or none, and the answer to give when they are committed."""

    records: tuple[MetadataRecord, ...]
    response: R


class Draft:
    """Records of a decision in the making, with the image they lead to.

    The offsets in this image are guesses; the real ones are known when the records are replayed.
    """

    __slots__ = ("image", "records")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.records: list[MetadataRecord] = []

    def add(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            self.image = self.image.apply(record, Offset(self.image.offset + 1))
            self.records.append(record)
