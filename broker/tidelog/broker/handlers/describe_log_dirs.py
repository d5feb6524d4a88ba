"""DescribeLogDirs: what lies in this broker's directories, and how much room is left."""

from __future__ import annotations

from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.replication.replicas import ReplicaSet
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDirectory
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs


class DescribeLogDirs:
    api_key = ApiKey.DESCRIBE_LOG_DIRS
    is_pipelined = False

    def __init__(self, context: BrokerContext, replicas: ReplicaSet, disk: Disk) -> None:
        self._context = context
        self._replicas = replicas
        self._disk = disk

    def begin(self, call: Call) -> ResponseFrame:
        structs = response_structs(self.api_key, call.version)
        results = tuple(
            self._directory(call, directory)
            for directory in self._replicas.keeper.directories.values()
        )
        message = structs.response(
            throttle_time=duration_i32(0), error_code=ErrorCode.NONE, results=results
        )
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _directory(self, call: Call, directory: LogDirectory) -> Any:
        structs = response_structs(self.api_key, call.version)
        is_offline = directory.failure is not None
        logs = {} if is_offline else self._wanted(call, directory)
        topics: dict[str, list[Any]] = {}
        for tp, log in sorted(logs.items()):
            topics.setdefault(tp.topic, []).append(
                structs.struct(
                    "DescribeLogDirsPartition",
                    partition_index=tp.partition,
                    partition_size=log.size,
                    offset_lag=max(0, log.high_watermark - log.end_offset),
                    is_future_key=False,
                )
            )
        free, total = (-1, -1) if is_offline else self._room(directory)
        return structs.struct(
            "DescribeLogDirsResult",
            error_code=ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.NONE,
            log_dir=directory.path,
            topics=tuple(
                structs.struct("DescribeLogDirsTopic", name=name, partitions=tuple(partitions))
                for name, partitions in topics.items()
            ),
            total_bytes=total,
            usable_bytes=free,
            is_cordoned=False,
        )

    def _wanted(self, call: Call, directory: LogDirectory) -> dict[TopicPartition, Log]:
        """All logs, or those that were asked for."""
        request: Any = call.request
        if request.topics is None:
            return dict(directory.logs)
        asked = {
            (topic.topic, int(index)) for topic in request.topics for index in topic.partitions
        }
        return {
            tp: log for tp, log in directory.logs.items() if (tp.topic, int(tp.partition)) in asked
        }

    def _room(self, directory: LogDirectory) -> tuple[int, int]:
        try:
            return self._disk.free_bytes(directory.path), self._disk.total_bytes(directory.path)
        except OSError:
            return -1, -1
