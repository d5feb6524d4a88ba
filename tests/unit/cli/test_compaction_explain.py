"""``tidelog explain compaction``: every broker is asked, and what holds a replica back is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli import compaction_explain
from tidelog.cli.compaction_explain import lines
from tidelog.cli.node_http import Answer, NoHttp
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]
REASON = {
    "hold": "active segment", "offset": 80, "detail": "77 bytes", "setting": "segment.ms",
}  # fmt: skip


def replica(partition: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "partition": partition, "role": "leader", "log_start_offset": 0, "log_end_offset": 100,
        "clean_point": 40, "first_uncleanable": 80, "clean_bytes": 300, "cleanable_bytes": 100,
        "dirty_ratio": 0.25, "due": False, "in_progress": False, "clean_floor": 30,
        "reasons": [REASON], "waits_for": [], "last_outcome": None, "next_horizon_ms": None,
        **changes,
    }  # fmt: skip


def test_how_a_replica_reads() -> None:
    one = {"broker": 2, **replica(waits_for=[3], next_horizon_ms=1_700_000_000_000)}
    assert list(lines("t", one)) == [
        "t-0 on broker 2 (leader): not due, dirty ratio 0.25: clean below offset 40 (300 bytes), "
        "cleanable below 80 (100 bytes)",
        "    held back: active segment from offset 80 (77 bytes); see segment.ms",
        "    tombstones and markers may go below offset 30",
        "    some have outlived their time and wait until broker 3 has cleaned",
        "    the next may go from 2023-11-14 22:13:20 UTC on; delete.retention.ms",
    ]
    alone = {"broker": 2, **replica(in_progress=True, reasons=[])}
    assert len(list(lines("t", alone))) == 2


class Nodes(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__({ApiKey.DESCRIBE_CONFIGS: self.configs, ApiKey.METADATA: self.metadata})
        self.told: dict[str, Any] = {}
        self.paths: set[str] = set()

    def configs(self, request: Any) -> Mapping[str, Any]:
        return {"results": [{"configs": [{"name": "http.listener", "value": ":9644"}]}]}

    def metadata(self, request: Any) -> Mapping[str, Any]:
        (topic,) = request.topics
        code = ErrorCode.NONE if topic.name == "t" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {"topics": [{"name": topic.name, "error_code": code}]}

    def fetch(self, address: SocketAddress, path: str) -> Answer:
        self.paths.add(path)
        if address.host not in self.told:
            raise NoHttp("refused")
        return Answer({"replicas": self.told[address.host]}, None)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()
    made.install(monkeypatch)
    monkeypatch.setattr(compaction_explain, "fetch", made.fetch)
    return made


def test_replicas_of_all_brokers_in_order(tidelog: Run, nodes: Nodes) -> None:
    nodes.told = {"node-1": [replica(1), replica(0)], "node-2": [replica(0)]}
    shown = json.loads(tidelog("explain", "compaction", "a b", "--json").out)
    assert [(one["partition"], one["broker"]) for one in shown] == [(0, 1), (0, 2), (1, 1)]
    assert nodes.paths == {"/v1/topics/a%20b/compaction"}


def test_nobody_tells(tidelog: Run, nodes: Nodes) -> None:
    answer = tidelog("explain", "compaction", "t")
    assert answer.code == 1
    assert "http.listener" in answer.err
    missing = tidelog("explain", "compaction", "nosuch")
    assert (missing.code, "topic 'nosuch' does not exist" in missing.err) == (1, True)
    assert "http.listener" not in missing.err
