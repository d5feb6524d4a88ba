"""DescribeTransactions: where transactional ids stand that this node coordinates."""

from __future__ import annotations

from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.transactions import Transactions
from tidelog.coordinator.transactions.transaction_records import TransactionValue
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TimestampMs
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, exact_moment
from tidelog.wire.protocol.responses import encode_response, response_structs


class DescribeTransactions:
    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    is_pipelined = False

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        message = structs.response(
            throttle_time=duration_i32(0),
            transaction_states=tuple(
                _row(structs, name, self._describe(name)) for name in request.transactional_ids
            ),
        )
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _describe(self, transactional_id: str) -> TransactionValue | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self._transactions.find(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard.transactions.describe(transactional_id)


def _row(structs: Any, name: str, found: TransactionValue | ErrorCode) -> Any:
    if isinstance(found, ErrorCode):
        return structs.struct(
            "TransactionState",
            error_code=found,
            transactional_id=name,
            transaction_state="",
            transaction_timeout=duration_i32(0),
            transaction_start_time=exact_moment(TimestampMs(0)),
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    return structs.struct(
        "TransactionState",
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=found.state.label,
        transaction_timeout=duration_i32(found.timeout_ms),
        transaction_start_time=exact_moment(TimestampMs(found.start_ms)),
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            structs.struct("TopicData", topic=topic, partitions=indexes)
            for topic, indexes in found.partitions or ()
        ),
    )
