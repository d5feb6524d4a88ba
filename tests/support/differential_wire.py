"""golden/wire against a live broker: what four clients sent, in the order in which they sent it.

Each run starts on a broker with the topics that the recorded one had, filled to the offsets that
it had. Requests go out and answers are awaited in the order of the recording, so that a member of a
group waits for the others as it did there; the waits of fetches are cut short, because nobody
produces while they wait. Runs that need an API which the target lacks (transactions, SASL) are left
out as a whole, single calls of such an API are left out of the others.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Final

from differential import Finding, Ids, Plain, Recorded, compare, sent_records, shifted
from live_target import Target
from protocol_golden import GOLDEN
from raw_client import SILENT, RawConnection

from tidelog.wire.batch import HEADER_SIZE, read_header
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.records import Record, build_batch

CLIENTS: Final = ("java", "confluent", "kafka-python", "aiokafka")
_STATEFUL: Final = {"JoinGroup", "ConsumerGroupHeartbeat", "EndTxn", "SaslHandshake"}
_KEYS: Final = {key.name.replace("_", "").lower(): int(key) for key in ApiKey}
_SHORT_WAIT_MS: Final = 20
_PARKED: Final = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_HEAD_START_S: Final = 0.01
_TARGET_INTERVAL_S: Final = 1.02
"""A group gets a new target assignment once a second at most."""
_OF_OTHER_RUNS: Final = ("java-admin-groups",)
"""It asks for the groups that other runs left behind."""
_LONG_AGO_MS: Final = 1_750_000_000_000
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")

_Place = tuple[int, int]
"""A connection and a correlation id on it."""


def runs(target: Target) -> list[str]:
    """The recorded runs that the target can take."""
    found = []
    for path in sorted((GOLDEN / "wire").glob("*.jsonl")):
        apis = {frame["api_name"] for frame in _frames(path.stem)}
        lacking = {a for a in apis & _STATEFUL if not target.compares(_KEYS[a.lower()])}
        if path.stem.startswith(CLIENTS) and not lacking and path.stem not in _OF_OTHER_RUNS:
            found.append(path.stem)
    return found


def replay(target: Target, run: str) -> tuple[int, list[Finding]]:
    """How many calls were compared, and those with another answer."""
    frames = _frames(run)
    ids = _set_up(target, frames)
    by_ms = int(time.time() * 1000) - _recorded_at_ms(frames)
    connections: dict[int, RawConnection] = {}
    waiting: dict[_Place, Recorded] = {}
    findings: list[Finding] = []
    calls = 0
    recorded = _calls(target, run, frames)
    last_ms = 0
    for frame in frames:
        place = (frame["connection"], frame["correlation_id"])
        call = recorded.get(place)
        if call is None:
            continue
        if frame["dir"] == "request":
            if frame["connection"] not in connections:
                connections[frame["connection"]] = target.connect()
            if call.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
                pause_ms, last_ms = frame["t_ms"] - last_ms, frame["t_ms"]
                time.sleep(_TARGET_INTERVAL_S if pause_ms > _TARGET_INTERVAL_S * 1000 else 0)
            _send(connections[frame["connection"]], call, ids, by_ms)
            waiting[place] = call
        elif waiting.pop(place, None) is not None:
            calls += 1
            finding = compare(call, connections[frame["connection"]].receive(), ids)
            if finding is not None:
                findings.append(finding)
            if call.api_key == ApiKey.END_TXN:
                target.await_ended_transactions()
    for connection in connections.values():
        connection.close()
    return calls, findings


def _send(connection: RawConnection, call: Recorded, ids: Ids, by_ms: int) -> None:
    frame = shifted(ids.to_live(call.request), call.sent_records, by_ms, ids.producers)
    if call.api_key == ApiKey.FETCH:
        frame = _with_short_wait(frame)
    connection.send(frame)
    if call.api_key in _PARKED:
        time.sleep(_HEAD_START_S)  # it must be there before what others send behind it


def _frames(run: str) -> list[Plain]:
    text = (GOLDEN / "wire" / f"{run}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _calls(target: Target, run: str, frames: list[Plain]) -> dict[_Place, Recorded]:
    """By connection and correlation id."""
    found: dict[_Place, Recorded] = {}
    answers = {
        (frame["connection"], frame["correlation_id"]): bytes.fromhex(frame["hex"])[4:]
        for frame in frames
        if frame["dir"] == "response"
    }
    for frame in frames:
        if frame["dir"] != "request" or not target.compares(frame["api_key"]):
            continue
        answer = answers.get((frame["connection"], frame["correlation_id"]))
        is_unacknowledged = frame["body"].get("acks") == 0
        if answer is None and not is_unacknowledged:
            continue  # the client hung up first
        found[frame["connection"], frame["correlation_id"]] = Recorded(
            (run, frame["api_name"]),
            frame["api_key"],
            frame["version"],
            bytes.fromhex(frame["hex"]),
            "response" if answer is not None else SILENT,
            answer,
            sent_records(frame["body"]),
            has_same_records=False,
        )
    return found


def _with_short_wait(frame: bytes) -> bytes:
    for wait_ms in (200, 500):
        frame = frame.replace(
            struct.pack(">ii", wait_ms, 1), struct.pack(">ii", _SHORT_WAIT_MS, 1), 1
        )
    return frame


# --- what was there --------------------------------------------------------------------


def _set_up(target: Target, frames: list[Plain]) -> Ids:
    """The topics that were there before the run, as full as they were."""
    existing = target.topic_ids()
    target.delete_topics(name for name in existing if name not in _INTERNAL)
    ends = _ends(frames)
    ids = Ids()
    for topic in _topics_before(frames):
        name, partitions = topic["name"], len(topic["partitions"])
        if name not in _INTERNAL or name not in existing:
            target.create_topic(name, partitions)
        live = target.await_topic(name)
        if "topicId" in topic:
            ids.learn_topic(topic["topicId"], str(live))
        for partition in range(partitions):
            _fill(target, name, partition, ends.get((name, partition), 0))
    return ids


def _topics_before(frames: list[Plain]) -> Iterator[Plain]:
    made = {
        topic["name"]
        for frame in frames
        if frame["dir"] == "request" and frame["api_name"] == "CreateTopics"
        for topic in frame["body"]["topics"]
        if not frame["body"].get("validateOnly")
    }
    seen: set[str] = set()
    for body in _responses(frames, "Metadata"):
        for topic in body["topics"]:
            if topic["errorCode"] == 0 and topic["name"] not in made | seen:
                seen.add(topic["name"])
                yield topic


def _ends(frames: list[Plain]) -> dict[tuple[str, int], int]:
    """Where each partition ended when the run first touched it."""
    names = {
        topic["topicId"]: topic["name"]
        for body in _responses(frames, "Metadata")
        for topic in body["topics"]
        if "topicId" in topic
    }
    ends: dict[tuple[str, int], int] = {}
    for frame in frames:
        if frame["dir"] == "response":
            for topic, partition, end in _told_ends(frame):
                name = names.get(topic, topic)
                if end >= 0:
                    ends.setdefault((name, partition), end)
    return ends


def _told_ends(frame: Plain) -> Iterator[tuple[str, int, int]]:
    body = frame["body"]
    match frame["api_name"]:
        case "Produce":
            for topic in body["responses"]:
                for row in topic["partitionResponses"]:
                    yield _name(topic), row["index"], row["baseOffset"]
        case "Fetch":
            for topic in body["responses"]:
                for row in topic["partitions"]:
                    yield _name(topic), row["partitionIndex"], row["highWatermark"]


def _name(topic: Plain) -> str:
    name: str = topic.get("name") or topic.get("topic") or topic["topicId"]
    return name


def _responses(frames: Iterable[Plain], api: str) -> Iterator[Plain]:
    for frame in frames:
        if frame["dir"] == "response" and frame["api_name"] == api:
            yield frame["body"]


def _fill(target: Target, topic: str, partition: int, end: int) -> None:
    if end > 0:
        now_ms = int(time.time() * 1000)
        records = [Record(i, now_ms, None, b"before") for i in range(end)]
        target.produce(topic, build_batch(records), partition)


def _recorded_at_ms(frames: list[Plain]) -> int:
    times = [
        read_header(batch).base_timestamp
        for frame in frames
        for batch in sent_records(frame["body"] if frame["dir"] == "request" else None)
        if len(batch) >= HEADER_SIZE and read_header(batch).base_timestamp > _LONG_AGO_MS
    ]
    return min(times, default=int(time.time() * 1000))
