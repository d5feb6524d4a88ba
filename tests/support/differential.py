"""The same raw requests to two brokers: Apache Kafka 4.3.1, which was recorded, and a live one.

Ids that a broker draws (of topics, of fetch sessions) differ: ``Ids`` puts the live ones into
requests, and comparable answers speak of the recorded ones. What differs from run to run is masked,
the rest must be equal.
"""

from __future__ import annotations

import base64
import datetime
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crc32c import crc32c
from golden_masks import codes, masked
from golden_replay import decoded
from known_differences import Difference, Key

from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.batch import CRC_START, HEADER_SIZE, check_batch, read_header
from tidelog.wire.errors import CorruptBatch
from tidelog.wire.protocol.apis import ApiKey

Plain = dict[str, Any]

LONG_AGO_MS: Final = 1_750_000_000_000
"""Recorded timestamps are either made up and older than this, or of the day of recording."""

_TIMES: Final = struct.Struct(">qq")
_BASE_TIMESTAMP_AT: Final = 27
_PRODUCER_ID_AT: Final = 43
_CRC_AT: Final = 17
_BROKER: Final = 4
_STATIC: Final = 4
_DEFAULT: Final = 5
_INVALID_RECORD: Final = 87
_DRIFTING: Final = ("t1",)
"""Where a batch is taken that Kafka refuses, so that offsets are not equal afterwards."""

_DRAWN: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[\w-]{22}$")
"""How ids end that a coordinator drew."""
_NAMING_PRODUCERS: Final = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT,
    }
)  # fmt: skip
_LONG_NUMBER: Final = re.compile(r"\d{12,}")


class Recorded(NamedTuple):
    """One call and what Kafka did."""

    key: Key
    """By which a known difference is found."""
    api_key: int | None
    version: int | None
    request: bytes
    """With its size."""
    outcome: str
    response: bytes | None
    """Without its size."""
    sent_records: tuple[bytes, ...] = ()
    has_same_records: bool = True
    """Whether the live log holds what the recorded one held."""


class Finding(NamedTuple):
    """Two answers that are not equal."""

    call: Recorded
    ours: Any
    theirs: Any

    @property
    def our_codes(self) -> tuple[int, ...] | str:
        return self.ours if isinstance(self.ours, str) else tuple(codes(self.ours))

    @property
    def their_codes(self) -> tuple[int, ...] | str:
        return self.theirs if isinstance(self.theirs, str) else tuple(codes(self.theirs))


@dataclass
class Ids:
    """Recorded ids and the live ones in their place."""

    topics: dict[bytes, bytes] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    """Ids that the coordinator gave to members; as long as the recorded ones."""
    sessions: dict[int, int] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)

    def to_live(self, frame: bytes) -> bytes:
        for theirs, ours in self.topics.items():
            frame = frame.replace(theirs, ours)
        for member, live_member in self.members.items():
            frame = frame.replace(member.encode(), live_member.encode())
        for recorded, live in self.sessions.items():
            frame = frame.replace(recorded.to_bytes(4, "big"), live.to_bytes(4, "big"))
        return self._with_producers(frame)

    def _with_producers(self, frame: bytes) -> bytes:
        """In requests that name a producer; in batches ``shifted`` exchanges it."""
        if int.from_bytes(frame[4:6], "big") not in _NAMING_PRODUCERS or not self.producers:
            return frame
        live = {t.to_bytes(8, "big"): o.to_bytes(8, "big") for t, o in self.producers.items()}
        named = re.compile(b"|".join(map(re.escape, live)))
        return named.sub(lambda match: live[match[0]], frame)

    def to_recorded(self, topic_id: str) -> str:
        raw = Uuid.parse(topic_id).raw
        return next((str(Uuid(t)) for t, o in self.topics.items() if o == raw), "an id")

    def learn_topic(self, theirs: str, ours: str) -> None:
        if Uuid.parse(theirs) != ZERO_UUID and Uuid.parse(ours) != ZERO_UUID:
            self.topics[Uuid.parse(theirs).raw] = Uuid.parse(ours).raw

    def member_to_recorded(self, text: str) -> str:
        return next((theirs for theirs, ours in self.members.items() if ours == text), text)

    def learn(self, theirs: Plain, ours: Plain) -> None:
        """Ids that stand in both answers, by the names they stand for."""
        drawn = dict(_named_ids(ours))
        for name, topic_id in _named_ids(theirs):
            if name in drawn:
                self.learn_topic(topic_id, drawn[name])
        if theirs.get("session_id", 0) > 0 and ours.get("session_id", 0) > 0:
            self.sessions[theirs["session_id"]] = ours["session_id"]
        if theirs.get("producer_id", -1) >= 0 and ours.get("producer_id", -1) >= 0:
            self.producers[theirs["producer_id"]] = ours["producer_id"]
        if "member_id" in theirs and _DRAWN.search(theirs["member_id"] or ""):
            self.members[theirs["member_id"]] = ours["member_id"]


def _named_ids(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _named_ids(one)
    elif isinstance(value, dict):
        if value.get("name") and value.get("topic_id"):
            yield value["name"], value["topic_id"]
        for one in value.values():
            yield from _named_ids(one)


def compare(call: Recorded, answer: bytes | str, ids: Ids) -> Finding | None:
    """None if the live answer is as good as the recorded one."""
    if isinstance(answer, str) or call.response is None:
        ours = answer if isinstance(answer, str) else "response"
        return None if ours == call.outcome else Finding(call, ours, call.outcome)
    assert call.api_key is not None and call.version is not None
    theirs = decoded(call.api_key, call.version, call.response)
    ours_plain = decoded(call.api_key, call.version, answer)
    ids.learn(theirs, ours_plain)
    if call.api_key == ApiKey.DESCRIBE_CONFIGS:
        _keep_common_broker_settings(ours_plain, theirs)
    if call.api_key == ApiKey.FETCH and not call.has_same_records:
        _forget_records(theirs)
        _forget_records(ours_plain)
    if call.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:  # the same code in other words
        for one in (ours_plain, theirs):
            one["error_message"] = "some words" if one["error_message"] else None
    if call.api_key == ApiKey.LIST_GROUPS and not call.has_same_records:
        _keep_common_groups(ours_plain, theirs)
    mine = masked(_comparable(ours_plain, ids, is_live=True), _known(ids))
    other = masked(_comparable(theirs, ids, is_live=False), _known(ids))
    return None if mine == other else Finding(call, mine, other)


def _forget_records(response: Plain) -> None:
    for topic in response["responses"]:
        for row in topic["partitions"]:
            row["records"] = "some" if row["records"] else "none"
            row["aborted_transactions"] = row["aborted_transactions"] is not None


def _keep_common_groups(ours: Plain, theirs: Plain) -> None:
    """Each broker has had other groups before."""
    names = [{group["group_id"] for group in one["groups"]} for one in (ours, theirs)]
    for one in (ours, theirs):
        one["groups"] = [g for g in one["groups"] if g["group_id"] in names[0] & names[1]]


class Judgement(NamedTuple):
    unexpected: list[Finding]
    stale: list[Key]
    """Known differences that are none any more."""


def judge(findings: Iterable[Finding], known: Mapping[Key, Difference]) -> Judgement:
    unexpected = []
    missing = {key for key, difference in known.items() if not difference.varies}
    for finding in findings:
        difference = known.get(finding.call.key)
        if difference is not None and finding.our_codes in (difference.ours, difference.or_else):
            missing.discard(finding.call.key)
        else:
            unexpected.append(finding)
    return Judgement(unexpected, sorted(missing, key=str))


def _known(ids: Ids) -> set[str]:
    return {str(Uuid(theirs)) for theirs in ids.topics}


_OF_A_RUN: Final = {
    "host": "a host", "port": "a port", "session_id": "a session", "log_dir": "a directory",
    "total_bytes": "a size", "usable_bytes": "a size", "replica_directory_id": "a directory",
}  # fmt: skip


def _comparable(value: Any, ids: Ids, *, is_live: bool) -> Any:
    """Without what differs from run to run, beyond what ``masked`` takes out."""
    if isinstance(value, list):
        return [_comparable(one, ids, is_live=is_live) for one in value]
    if isinstance(value, str) and is_live:
        return ids.member_to_recorded(value)
    if not isinstance(value, dict):
        return value
    plain = {n: _comparable(v, ids, is_live=is_live) for n, v in value.items()}
    for name, word in _OF_A_RUN.items():
        if plain.get(name) not in (None, "", 0, -1):
            plain[name] = word
    if plain.get("cluster_id") is not None:
        plain["cluster_id"] = "a cluster"
    if is_live and plain.get("topic_id") is not None:
        plain["topic_id"] = ids.to_recorded(plain["topic_id"])
    if "current_voters" in plain:
        plain["leader_epoch"] = "a term"
    if plain.get("producer_id", -1) >= 0:
        plain["producer_id"] = "a producer"
    if "partition_size" in plain:
        plain["partition_size"] = "a size"
    for name in ("timestamp", "last_timestamp", "transaction_start_time"):
        moment = plain.get(name)
        if isinstance(moment, datetime.datetime):
            moment = int(moment.timestamp() * 1000)
        if isinstance(moment, int) and moment > LONG_AGO_MS:
            plain[name] = "a time"
    for name in ("partitions", "partition_responses"):
        if plain.get(name) and not isinstance(plain[name][0], int):
            plain[name].sort(key=lambda one: one.get("partition_index", one.get("index")))
    _put_in_order(plain)
    if plain.get("log_append_time") is not None:
        plain["log_append_time"] = "a time"
    if plain.get("error_message"):
        plain["error_message"] = _LONG_NUMBER.sub("N", plain["error_message"])
    if plain.get("config_source") == _STATIC:  # what a node's file says is its own affair
        plain["config_source"] = _DEFAULT
    if "synonyms" in plain:
        plain["synonyms"] = [one for one in plain["synonyms"] if one["source"] != _STATIC]
    if "partition_responses" in plain:
        for row in plain["partition_responses"]:
            _mask_produced(row, has_drifted=plain.get("name") in _DRIFTING)
    return plain


def _put_in_order(plain: Plain) -> None:
    """Groups, and topics that are only given by their ids: Kafka puts errors first."""
    for name, rows in plain.items():
        if not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
            continue
        if name in ("active_producers", "transaction_states", "results_by_partition"):
            plain[name] = sorted(rows, key=str)
        elif "group_id" in rows[0]:
            plain[name] = sorted(rows, key=lambda one: str(one["group_id"]))
        elif name == "members" and "member_epoch" in rows[0]:
            plain[name] = sorted(rows, key=lambda one: str(one["member_id"]))
        elif name == "topics" and "topic_id" in rows[0] and "name" not in rows[0]:
            plain[name] = sorted(rows, key=lambda one: str(one["topic_id"]))


def _mask_produced(row: Plain, *, has_drifted: bool) -> None:
    """Ours says in words what is wrong where Kafka is silent, and no log start with an error."""
    if has_drifted and row["base_offset"] > 0:
        row["base_offset"] = "an offset"
    if row["error_code"] != 0:
        row.pop("error_message", None)
        row.pop("log_start_offset", None)
        bad = row.pop("record_errors", ())
        if row["error_code"] == _INVALID_RECORD:
            row["bad_records"] = [one["batch_index"] for one in bad]


def _keep_common_broker_settings(mine: Plain, other: Plain) -> None:
    """Two brokers run with other settings; what both have must be of the same type."""
    for ours, theirs in zip(mine["results"], other["results"], strict=True):
        if ours["resource_type"] == theirs["resource_type"] == _BROKER and len(ours["configs"]) > 9:
            found = [
                {c["name"]: (c["is_sensitive"], c.get("config_type")) for c in result["configs"]}
                for result in (ours, theirs)
            ]
            common = sorted(found[0].keys() & found[1].keys())
            assert len(common) > 100
            ours["configs"] = [found[0][name] for name in common]
            theirs["configs"] = [found[1][name] for name in common]


# --- time ------------------------------------------------------------------------------


def shifted(
    frame: bytes,
    sent_records: Iterable[bytes],
    by_ms: int,
    producers: Mapping[int, int] = MappingProxyType({}),
) -> bytes:
    """A Produce request as if it were sent by so much later, and by a live producer."""
    for batch in sent_records:
        if len(batch) < HEADER_SIZE or batch[16] != 2:
            continue
        header = read_header(batch)
        moved = bytearray(batch)
        if header.base_timestamp > LONG_AGO_MS:
            latest = header.max_timestamp + (by_ms if header.max_timestamp > LONG_AGO_MS else 0)
            _TIMES.pack_into(moved, _BASE_TIMESTAMP_AT, header.base_timestamp + by_ms, latest)
        producer = producers.get(header.producer_id, int(header.producer_id))
        moved[_PRODUCER_ID_AT : _PRODUCER_ID_AT + 8] = producer.to_bytes(8, "big", signed=True)
        if moved != batch and _is_sound(batch):
            moved[_CRC_AT:CRC_START] = crc32c(bytes(moved[CRC_START:])).to_bytes(4, "big")
        frame = frame.replace(batch, bytes(moved))
    return frame


def _is_sound(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except CorruptBatch:
        return False
    return True


def sent_records(request: Plain | None) -> tuple[bytes, ...]:
    """The record sections of a decoded Produce request."""
    return tuple(
        base64.b64decode(partition["records"])
        for topic in (request or {}).get("topicData", ())
        for partition in topic["partitionData"]
        if partition["records"]
    )


def unequal(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours.keys() | theirs.keys():
            yield from unequal(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from unequal(mine, other, f"{path}[{i}]")
    elif ours != theirs:
        yield f"{path.lstrip('.')}: {_short(ours)}, Kafka {_short(theirs)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
