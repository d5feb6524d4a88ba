"""Brokers of a few lines: threads on real sockets, a log each test writes, errors on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset, PartitionIndex, ProducerId, TopicId, Uuid
from tidelog.wire.batch import headers
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import RequestFrame, parse_request, read_frame_size
from tidelog.wire.protocol.hot_requests.fetch import FetchRequest
from tidelog.wire.protocol.hot_responses.fetch import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch,
)
from tidelog.wire.protocol.kio_values import duration_i32, kio_error
from tidelog.wire.protocol.requests import decode_request
from tidelog.wire.protocol.responses import encode_response, response_structs

HANG_UP = "hang up"
_SERVED = {ApiKey.FETCH: (4, 11), ApiKey.LIST_OFFSETS: (1, 5), ApiKey.METADATA: (0, 7)}


@dataclass
class PretendedCluster:
    """One partition, ``t-0``, on two nodes."""

    log: list[bytes] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    leader: int = 1
    aborted: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[ApiKey, list[ErrorCode | str]] = field(default_factory=dict)
    """What the next requests get instead of an answer."""
    batches_per_fetch: int = 1
    is_internal: bool = False
    ports: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[PretendedCluster]:
        listeners = []
        for node in (1, 2):
            listener = socket.create_server(("127.0.0.1", 0))
            self.ports[node] = listener.getsockname()[1]
            listeners.append(listener)
            threading.Thread(target=self._accept, args=(node, listener), daemon=True).start()
        try:
            yield self
        finally:
            for listener in listeners:
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def _accept(self, node: int, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(node, connection), daemon=True).start()

    def _serve(self, node: int, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while prefix := stream.read(4):
                request = parse_request(stream.read(read_frame_size(prefix)))
                assert isinstance(request, RequestFrame), request
                self.asked.append((node, request.api.name))
                planned = self.answers.get(ApiKey(request.api.key))
                instead = planned.pop(0) if planned else ErrorCode.NONE
                if instead == HANG_UP:
                    return
                assert isinstance(instead, ErrorCode)
                for part in self._answer(node, request, instead):
                    connection.sendall(part)

    def _answer(self, node: int, request: RequestFrame, error: ErrorCode) -> list[Any]:
        key, version, correlation_id = request.api.key, request.version, request.correlation_id
        decoded = decode_request(key, version, request.body)
        if isinstance(decoded, FetchRequest):
            response = self._fetch(node, decoded, error)
            return list(encode_fetch(version, correlation_id, response).segments)
        structs = response_structs(key, version)
        if key == ApiKey.API_VERSIONS:
            message = self._versions(structs)
        elif key == ApiKey.METADATA:
            message = self._metadata(structs, error)
        else:
            message = self._offsets(structs, decoded, error)
        return list(encode_response(key, version, correlation_id, message).segments)

    def _versions(self, structs: Any) -> Any:
        served = tuple(
            structs.struct("ApiVersion", api_key=key, min_version=least, max_version=most)
            for key, (least, most) in _SERVED.items()
        )
        return structs.response(error_code=kio_error(ErrorCode.NONE), api_keys=served)

    def _metadata(self, structs: Any, error: ErrorCode) -> Any:
        brokers = tuple(
            structs.struct(
                "MetadataResponseBroker", node_id=node, host="127.0.0.1", port=port, rack=None
            )
            for node, port in self.ports.items()
        )
        partition = structs.struct(
            "MetadataResponsePartition",
            error_code=kio_error(ErrorCode.NONE),
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=1,
            replica_nodes=(1, 2),
            isr_nodes=(1, 2),
            offline_replicas=(),
        )
        topic = structs.struct(
            "MetadataResponseTopic",
            error_code=kio_error(error),
            name="t",
            is_internal=self.is_internal,
            partitions=(partition,) if error is ErrorCode.NONE else (),
        )
        return structs.response(
            throttle_time=duration_i32(0),
            brokers=brokers,
            cluster_id="c",
            controller_id=1,
            topics=(topic,),
        )

    def _offsets(self, structs: Any, request: Any, error: ErrorCode) -> Any:
        moment = request.topics[0].partitions[0].timestamp
        found = structs.struct(
            "ListOffsetsPartitionResponse",
            partition_index=0,
            error_code=kio_error(error),
            timestamp=-1,
            offset=self.log_start if moment == -2 else self.end,
            leader_epoch=1,
        )
        topic = structs.struct("ListOffsetsTopicResponse", name="t", partitions=(found,))
        return structs.response(throttle_time=duration_i32(0), topics=(topic,))

    def _fetch(self, node: int, request: FetchRequest, error: ErrorCode) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        if error is ErrorCode.NONE and node != self.leader:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is ErrorCode.NONE and not self.log_start <= offset <= self.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b""
        if error is ErrorCode.NONE:
            wanted = [one for one in self.log if next(headers(one))[1].last_offset >= offset]
            records = b"".join(wanted[: self.batches_per_fetch])
        partition = FetchPartitionResponse(
            PartitionIndex(0),
            error,
            Offset(self.end),
            Offset(self.end),
            Offset(self.log_start),
            [AbortedTransaction(ProducerId(p), Offset(o)) for p, o in self.aborted],
            records=records,
        )
        return FetchResponse([FetchTopicResponse("t", TopicId(Uuid(bytes(16))), [partition])])
