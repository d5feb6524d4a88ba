"""ListTransactions: the transactional ids that this node coordinates, by state, producer or age.

A pattern (from version 2 on) runs on the engine for topic names, which knows their characters: an
id with any other character matches none.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.transactions import Transactions
from tidelog.coordinator.consumer.topic_regex import InvalidRegex, TopicRegex, matching_topics
from tidelog.coordinator.transactions.states import BY_LABEL
from tidelog.coordinator.transactions.transactions import Listed
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

_ANY_DURATION: Final = -1


class ListTransactions:
    api_key = ApiKey.LIST_TRANSACTIONS
    is_pipelined = False

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        pattern = field_of(request, "transactional_id_pattern", None)
        try:
            regex = TopicRegex(pattern) if pattern else None
            found = self._select(request)
            if isinstance(found, ErrorCode):
                return _response(call, found)
            if regex is not None:
                names = frozenset(matching_topics(regex, (one.transactional_id for one in found)))
                found = [one for one in found if one.transactional_id in names]
        except InvalidRegex:
            return _response(call, ErrorCode.INVALID_REGULAR_EXPRESSION)
        unknown = tuple(name for name in request.state_filters if name not in BY_LABEL)
        return _response(call, ErrorCode.NONE, unknown, found)

    def _select(self, request: Any) -> list[Listed] | ErrorCode:
        states = {BY_LABEL[name] for name in request.state_filters if name in BY_LABEL}
        if request.state_filters and not states:
            return []
        found: list[Listed] = []
        for shard in self._transactions.shards():
            if isinstance(shard, ErrorCode):
                return shard
            found += shard.transactions.select(
                shard.now_ms(),
                states,
                frozenset(request.producer_id_filters),
                field_of(request, "duration_filter", _ANY_DURATION),
            )
        return found


def _response(
    call: Call, code: ErrorCode, unknown: tuple[str, ...] = (), listed: list[Listed] | None = None
) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    message = structs.response(
        throttle_time=duration_i32(0),
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=tuple(
            structs.struct(
                "TransactionState",
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for one in listed or ()
        ),
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
