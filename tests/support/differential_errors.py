"""golden/errors against a live broker: its topics and their data first, then call by call.

The broker must be a new one with node id 1 and the ``serverProperties`` of ``setup.json``, because
answers depend on what was asked before.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

from differential import (
    Finding,
    Ids,
    Plain,
    Recorded,
    compare,
    sent_records,
    shifted,
)
from golden_replay import error_setup
from live_target import SECONDS_20, Target
from protocol_golden import GOLDEN
from raw_client import CLOSED, SILENT, RawConnection

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.batch import read_header
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.records import Record, build_batch

SILENCE_S: Final = 0.3
"""How long to listen where Kafka said nothing."""

_PATIENCE: Final = 100
_PAUSE_S: Final = 0.02
_RECORDED_PRODUCERS: Final = 60
"""More than the recorded broker gave out: no live id is equal to another's recorded one."""

_T0: Final = 1_700_000_000_000
_KEEP: Final = {"retention.ms": "-1"}
"""The made-up timestamps are years old."""

_CONFIGS: Final[dict[str, dict[str, str]]] = {
    "tlat": {"message.timestamp.type": "LogAppendTime"},
    "tbefore": {"message.timestamp.before.max.ms": "3600000"},
    "tsmall": {"max.message.bytes": "1000"},
    "tsmall-gz": {"max.message.bytes": "1000", "compression.type": "gzip"},
    "tcompact": {"cleanup.policy": "compact"},
    "tcd": {"cleanup.policy": "compact,delete"},
    "tmin2": {"min.insync.replicas": "2"},
}
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
_PAUSE: Final = re.compile(r"after a pause of ([\d.]+) s")
_TIME_OF_RECORDING: Final = "timestamp now, same topic"
_STATEFUL: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat", "EndTxn"})
"""A scenario that uses one of these makes no sense without it."""


def set_up(target: Target) -> Ids:
    """The topics of ``setup.json`` with their data; the ids they got."""
    setup = error_setup()
    for name in _INTERNAL:
        target.create_topic(name, 4)
    for name in setup["topicIds"]:
        target.create_topic(name, 3 if name == "t3" else 1, _KEEP | _CONFIGS.get(name, {}))
    for name in ("tf", "dr", "deleted-records"):
        for i in range(5):
            target.produce(name, _pair(i))
    target.produce("t3", build_batch([Record(0, _T0, b"k", b"v")]))
    target.admin.ask(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": "deleted-records", "partitions": [{"partition_index": 0, "offset": 5}]}],
        timeout=SECONDS_20,
    )
    for _ in range(_RECORDED_PRODUCERS):
        target.draw_producer_id()
    ids = Ids()
    live = target.topic_ids()
    for name, topic_id in setup["topicIds"].items():
        ids.learn_topic(topic_id, str(live[name]))
    return ids


def _pair(i: int) -> bytes:
    first, second = _T0 + 2 * i, _T0 + 2 * i + 1
    return build_batch(
        [
            Record(0, first, f"k{i}".encode(), f"value-{i}".encode()),
            Record(1, second, b"k", b"w"),
        ]
    )


def replay(target: Target, ids: Ids) -> tuple[int, list[Finding]]:
    """How many calls were compared, and those with another answer."""
    calls = list(_calls(target))
    by_ms = int(time.time() * 1000) - _recorded_at_ms(calls)
    connections: dict[tuple[str, str], RawConnection] = {}
    findings: list[Finding] = []
    for case, call in calls:
        if case["step"] == 1:
            for connection in connections.values():
                connection.close()
            connections.clear()
        name = (case["scenario"], case["connection"])
        if name not in connections:
            connections[name] = target.connect()
        frame = shifted(ids.to_live(call.request), call.sent_records, by_ms, ids.producers)
        answer = _exchange(connections[name], case, call, frame)
        finding = compare(call, answer, ids)
        for _ in range(_PATIENCE):
            if finding is None or not _is_early(finding):
                break
            time.sleep(_PAUSE_S)
            answer = _exchange(connections[name], case, call, frame)
            finding = compare(call, answer, ids)
        if finding is not None:
            findings.append(finding)
        if CLOSED in (answer, call.outcome) or SILENT in (answer, call.outcome):
            connections.pop(name).close()
    return len(calls), findings


def _is_early(finding: Finding) -> bool:
    """Whether the transaction before has its markers yet to be written; Kafka's had time to."""
    ours, theirs = finding.our_codes, finding.their_codes
    if isinstance(ours, str) or isinstance(theirs, str):
        return False
    busy = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    return busy in ours and busy not in theirs


def _exchange(connection: RawConnection, case: Plain, call: Recorded, frame: bytes) -> bytes | str:
    if case["scenario"].endswith("then-close"):
        connection.send(frame)
        connection.socket.shutdown(1)
        return connection.receive()
    if call.outcome == SILENT:
        return connection.exchange(frame, SILENCE_S)
    if paused := _PAUSE.search(case.get("note") or ""):
        time.sleep(float(paused[1]))
    return connection.exchange(frame)


def _calls(target: Target) -> Iterator[tuple[Plain, Recorded]]:
    cases = [
        json.loads(line)
        for line in (GOLDEN / "errors" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    needed: dict[str, set[str]] = {}
    for case in cases:
        needed.setdefault(case["scenario"], set()).add(case["api"])
    for case in cases:
        lacking = {a for a in needed[case["scenario"]] & _STATEFUL if not _serves(target, a)}
        if not lacking and target.compares(case["apiKey"]):
            yield case, _recorded(case)


def _serves(target: Target, api: str) -> bool:
    keys = {key.name.replace("_", "").lower(): int(key) for key in ApiKey}
    return target.compares(keys[api.lower()])


def _recorded(case: Plain) -> Recorded:
    response = bytes.fromhex(case["responseHex"])[4:] if case.get("responseHex") else None
    return Recorded(
        (case["api"], case.get("note")),
        case["apiKey"],
        case["version"],
        bytes.fromhex(case["requestHex"]),
        case["outcome"],
        response,
        sent_records(case.get("request")),
    )


def _recorded_at_ms(calls: list[tuple[Any, Recorded]]) -> int:
    [case] = [case for case, _ in calls if case.get("note") == _TIME_OF_RECORDING]
    [topic] = case["request"]["topicData"]
    batch = base64.b64decode(topic["partitionData"][0]["records"])
    return int(read_header(batch).base_timestamp)
