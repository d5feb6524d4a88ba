"""Messages that are written and read by hand, against the tables that brokers use."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TimestampMs
from tidelog.pipeline.describe_message import VERSION, Described, describe_body, read_described
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.kio_values import duration_i32, exact_moment, kio_error
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.responses import response_structs


def test_one_transaction_is_asked_for() -> None:
    key = ApiKey.DESCRIBE_TRANSACTIONS
    request: Any = decode_request(key, VERSION, memoryview(describe_body("an id")))
    assert request.transactional_ids == ("an id",)


@pytest.mark.parametrize("start", [-1, 1_700_000_000_000])
def test_the_answer_is_read_with_and_without_a_start(start: int) -> None:
    structs = response_structs(ApiKey.DESCRIBE_TRANSACTIONS, VERSION)
    topic = structs.struct("TopicData", topic="t", partitions=(0, 1))
    state = structs.struct(
        "TransactionState",
        error_code=kio_error(ErrorCode.NONE),
        transactional_id="an id",
        transaction_state="Ongoing",
        transaction_timeout=duration_i32(1000),
        transaction_start_time=exact_moment(TimestampMs(start)),
        producer_id=7,
        producer_epoch=3,
        topics=(topic,),
    )
    answer = structs.response(throttle_time=duration_i32(0), transaction_states=(state,))
    body = memoryview(kio_bytes(answer))
    assert read_described(body) == Described(ErrorCode.NONE, "Ongoing", 7, 3)
    for length in range(24):
        with pytest.raises(MalformedRequest):
            read_described(body[:length])
