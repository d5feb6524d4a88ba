"""Which names a topic may have, and the ids topics get."""

from __future__ import annotations

import re
from typing import Final

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.topics import fold_topic_name
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TopicId, Uuid
from tidelog.kernel.ports import Random

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises Refused if no topic can have this name."""
    problem = _problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )
    return None


def check_topic_is_new(image: MetadataImage, name: str) -> None:
    """Raises Refused if a topic has this name, or one that metrics could not tell from it."""
    if name in image.topics.by_name:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    similar = image.topics.by_folded_name.get(fold_topic_name(name), ())
    if similar:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {similar[0]}",
        )


def draw_topic_id(image: MetadataImage, random: Random) -> TopicId:
    """A random id (version 4) that no topic has and that no tool takes for an option."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        topic_id = TopicId(Uuid(bytes(raw)))
        if not str(topic_id).startswith("-") and topic_id not in image.topics.by_id:
            return topic_id
