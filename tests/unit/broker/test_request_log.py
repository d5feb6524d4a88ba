"""The request log: on when its logger is at DEBUG, with what failed read from the answer."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from admin_desk import Desk, at_desk

from tidelog.broker.request_log import errors_in
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId
from tidelog.storage.read import FileSlice
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.hot_responses.fetch import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch,
)


def test_a_request_is_logged_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["nope"], timeout=timedelta(seconds=5))
        with caplog.at_level(logging.DEBUG, "tidelog.request"):
            await desk.ask(
                ApiKey.DELETE_TOPICS, 5, topic_names=["nope"], timeout=timedelta(seconds=5)
            )

    at_desk(scenario)
    [line] = [one for one in caplog.records if one.name == "tidelog.request"]
    facts = vars(line)
    assert (facts["api"], facts["version"], facts["client_id"]) == ("DeleteTopics", 5, "desk")
    assert facts["errors"] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert facts["size"] > 0 and facts["response_size"] > 0 and facts["latency_ms"] >= 0
    assert facts["listener"] == "PLAINTEXT"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line.getMessage()


class Slice(FileSlice):
    def __init__(self) -> None:
        pass

    @property
    def length(self) -> int:
        return 70


def test_answers_with_parts_of_files_are_read_too() -> None:
    rows = [
        FetchPartitionResponse(PartitionIndex(0), ErrorCode.NONE, records=Slice()),
        FetchPartitionResponse(PartitionIndex(1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        FetchPartitionResponse(PartitionIndex(2), ErrorCode.OFFSET_OUT_OF_RANGE),
        FetchPartitionResponse(PartitionIndex(3), ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    response = FetchResponse([FetchTopicResponse("t", TopicId(ZERO_UUID), rows)])
    frame = encode_fetch(12, 7, response)
    assert errors_in(APIS[ApiKey.FETCH], 12, frame) == [
        "NOT_LEADER_OR_FOLLOWER", "OFFSET_OUT_OF_RANGE",
    ]  # fmt: skip
