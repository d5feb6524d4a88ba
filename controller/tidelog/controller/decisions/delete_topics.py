"""DeleteTopics, by name or by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Refused
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import RemoveTopic
from tidelog.controller.metadata.topics import TopicImage
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, TopicId

NO_TOPIC = TopicId(ZERO_UUID)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Exactly one of the two says which topic is meant."""

    name: str | None = None
    topic_id: TopicId = NO_TOPIC


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    name: str | None
    topic_id: TopicId
    error: ApiError


def decide_delete_topics(
    image: MetadataImage, policy: ControllerPolicy, deletions: Sequence[Deletion]
) -> Decision[tuple[DeletedTopic, ...]]:
    if not policy.may_delete_topics:
        disabled = ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        return Decision((), tuple(DeletedTopic(d.name, d.topic_id, disabled) for d in deletions))
    times = Counter(deletions)
    records: dict[TopicId, RemoveTopic] = {}
    results: dict[Deletion, DeletedTopic] = {}
    for deletion in deletions:
        try:
            if times[deletion] > 1:
                what = "name" if deletion.name is not None else "id"
                raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            topic = _find(image, deletion)
            if topic.topic_id in records:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "The topic is listed both by name and by id."
                )
        except Refused as refused:
            failed = DeletedTopic(deletion.name, deletion.topic_id, refused.error)
            results[deletion] = failed
            continue
        records[topic.topic_id] = RemoveTopic(topic.topic_id)
        results[deletion] = DeletedTopic(topic.name, topic.topic_id, NO_ERROR)
    return Decision(tuple(records.values()), tuple(results.values()))


def _find(image: MetadataImage, deletion: Deletion) -> TopicImage:
    if deletion.name is not None and deletion.topic_id != NO_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if deletion.name is not None:
        topic = image.topics.named(deletion.name)
        if topic is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topic
    if deletion.topic_id == NO_TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = image.topics.by_id.get(deletion.topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic
