"""A live broker or cluster, set up and asked over raw connections: ours, or Kafka itself."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from golden_masks import SERVED
from raw_client import PATIENCE_S, RawConnection

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol.apis import ApiKey

BUILT: Final = SERVED | {
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
}  # fmt: skip
"""What is compared, if the target advertises it."""

SECONDS_20: Final = datetime.timedelta(seconds=20)
_SOFTWARE: Final[dict[str, Any]] = {
    "client_software_name": "differential",
    "client_software_version": "1",
}
_NOT_YET: Final = (3, 5, 6)


class Target:
    """Use one for a while; ``admin`` is its own connection."""

    def __init__(self, bootstrap: str) -> None:
        self.address = SocketAddress.parse(bootstrap.split(",")[0])
        self.admin = RawConnection(self.address)
        versions = self.admin.ask(ApiKey.API_VERSIONS, 3, **_SOFTWARE)
        self.advertised = {
            int(a.api_key): (a.min_version, a.max_version) for a in versions.api_keys
        }
        described = self._describe([])
        self.cluster_id = str(described.cluster_id)
        self.brokers = {
            int(b.node_id): SocketAddress(b.host, int(b.port)) for b in described.brokers
        }

    def compares(self, api_key: int | None) -> bool:
        return api_key is None or (api_key in BUILT and api_key in self.advertised)

    def connect(self, node: int | None = None) -> RawConnection:
        return RawConnection(self.address if node is None else self.brokers[node])

    def topic(self, name: str) -> Any:
        return self._describe([{"name": name, "topic_id": None}]).topics[0]

    def _describe(self, topics: list[dict[str, Any]] | None) -> Any:
        return self.admin.ask(
            ApiKey.METADATA,
            12,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    def await_topic(self, name: str) -> Uuid:
        """The id of a topic that was created a moment ago."""
        deadline = time.monotonic() + PATIENCE_S
        while (topic := self.topic(name)).topic_id is None or not topic.partitions:
            assert time.monotonic() < deadline, name
            time.sleep(0.01)
        return Uuid(topic.topic_id.bytes)

    def draw_producer_id(self) -> int:
        while True:
            answer = self.admin.ask(
                ApiKey.INIT_PRODUCER_ID,
                1,
                transactional_id=None,
                transaction_timeout=datetime.timedelta(seconds=1),
            )
            if answer.producer_id >= 0:
                return int(answer.producer_id)

    def await_ended_transactions(self) -> None:
        """Until their markers are written, without which the next ones would have to wait."""
        deadline = time.monotonic() + PATIENCE_S
        ending = ["PrepareCommit", "PrepareAbort"]
        while self.admin.ask(
            ApiKey.LIST_TRANSACTIONS, 0, state_filters=ending, producer_id_filters=[]
        ).transaction_states:
            assert time.monotonic() < deadline, "a transaction does not end"
            time.sleep(0.01)

    def topic_ids(self) -> dict[str, Uuid]:
        answer = self._describe(None)
        return {topic.name: Uuid(topic.topic_id.bytes) for topic in answer.topics}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: Iterable[int] = (),
    ) -> None:
        assignment = [{"partition_index": 0, "broker_ids": list(replicas)}] if replicas else []
        answer = self.admin.ask(
            ApiKey.CREATE_TOPICS,
            7,
            timeout_s=30,
            topics=[
                {
                    "name": name,
                    "num_partitions": -1 if assignment else partitions,
                    "replication_factor": -1 if assignment else 1,
                    "assignments": assignment,
                    "configs": [{"name": n, "value": v} for n, v in (configs or {}).items()],
                }
            ],
            timeout=SECONDS_20,
        )
        [row] = answer.topics
        assert int(row.error_code) == 0, (name, row)

    def delete_topics(self, names: Iterable[str]) -> None:
        rows = [{"name": name, "topic_id": None} for name in names]
        if rows:
            self.admin.ask(ApiKey.DELETE_TOPICS, 6, 30, topics=rows, timeout=SECONDS_20)

    def produce(self, topic: str, batch: bytes, partition: int = 0, node: int | None = None) -> int:
        """The base offset; tried again while a new topic is not in place yet."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, offset = self._try_to_produce(topic, batch, partition, node)
            if code == 0:
                return offset
            assert code in _NOT_YET and time.monotonic() < deadline, (topic, partition, code)
            time.sleep(0.01)

    def _try_to_produce(
        self, topic: str, batch: bytes, partition: int, node: int | None
    ) -> tuple[int, int]:
        with self.connect(node) as connection:
            answer = connection.ask(
                ApiKey.PRODUCE,
                9,
                acks=-1,
                timeout=SECONDS_20,
                topic_data=[
                    {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
                ],
            )
        [row] = answer.responses[0].partition_responses
        return int(row.error_code), int(row.base_offset)
