"""The options of ``format("tidelog")``: those of Spark's own Kafka connector, and two more.

The table is the one place where an option stands; docs/PIPELINE.md shows it, and a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.pipeline.errors import WrongOptions
from tidelog.pipeline.option_table import (
    Option,
    duration_ms,
    flag,
    names,
    one_of,
    parse_options,
    pattern,
    whole,
)
from tidelog.pipeline.positions import (
    EARLIEST,
    LATEST,
    Offsets,
    Place,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)

BATCH: Final = "batch"
STREAM: Final = "stream"
_BOTH: Final = frozenset({BATCH, STREAM})
_BATCH_ONLY: Final = frozenset({BATCH})
_STREAM_ONLY: Final = frozenset({STREAM})


@dataclass(frozen=True, slots=True)
class ByOffset:
    """``everywhere`` (``EARLIEST`` or ``LATEST``) if it is given, else an offset for each."""

    offsets: Offsets
    everywhere: int | None


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The first record at or after a time: the same everywhere, or one for each partition."""

    timestamps: Offsets
    everywhere: int | None
    latest_if_none: bool
    """Whether a time after the last record means the end, or is an error."""


Bound: TypeAlias = ByOffset | ByTimestamp


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of them."""

    topics: tuple[str, ...] | None
    pattern: str | None
    places: frozenset[Place] | None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: tuple[SocketAddress, ...]
    selection: Selection
    start: Bound
    end: Bound
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    include_value: bool
    read_committed: bool
    client_id: str
    request_timeout_ms: int
    fetch_bytes: int
    check_crcs: bool
    columns: tuple[str, ...] | None = None
    """Of a schema that was given; None: all."""


def _addresses(text: str) -> tuple[SocketAddress, ...]:
    return tuple(SocketAddress.parse(part) for part in names(text))


def _start_or_end(text: str) -> ByOffset:
    match text.strip().lower():
        case "earliest":
            return ByOffset({}, EARLIEST)
        case "latest":
            return ByOffset({}, LATEST)
        case _:
            return ByOffset(parse_offsets(text), None)


_OFFSETS: Final = '`earliest`, `latest`, or JSON `{"topic":{"0":17}}` (−2 earliest, −1 latest)'
_TIMES: Final = 'JSON `{"topic":{"0":1700000000000}}`'
_NO_MEMBERSHIP: Final = "accepted; no group is joined and no offset committed"

TABLE: Final = (
    Option("kafka.bootstrap.servers", "host:port, …", _addresses, None,
           "brokers to ask first; required", _BOTH),
    Option("subscribe", "topics joined by commas", names, None,
           "the topics to read", _BOTH),
    Option("subscribePattern", "regular expression (Python)", pattern, None,
           "read the topics whose whole name matches", _BOTH),
    Option("assign", 'JSON `{"topic":[0,1]}`', parse_assignment, None,
           "read only these partitions", _BOTH),
    Option("startingTimestamp", "integer ≥ 0 (ms)", whole(0), None,
           "start at the first record of this time or later; goes before the other two", _BOTH),
    Option("startingOffsetsByTimestamp", _TIMES, parse_timestamps, None,
           "the same for each partition; goes before `startingOffsets`", _BOTH),
    Option("startingOffsets", _OFFSETS, _start_or_end, None,
           "where to start; without it `latest` for streams and `earliest` for batches", _BOTH),
    Option("startingOffsetsByTimestampStrategy", "`error` or `latest`", one_of("error", "latest"),
           "error", "what to do if no record is that young", _BOTH),
    Option("endingTimestamp", "integer ≥ 0 (ms)", whole(0), None,
           "end before the first record of this time or later", _BATCH_ONLY),
    Option("endingOffsetsByTimestamp", _TIMES, parse_timestamps, None,
           "the same for each partition", _BATCH_ONLY),
    Option("endingOffsets", _OFFSETS, _start_or_end, None,
           "where to end (that offset is not read); without it `latest`", _BATCH_ONLY),
    Option("maxOffsetsPerTrigger", "integer ≥ 1", whole(1), None,
           "most offsets of a micro-batch, shared out by backlog", _STREAM_ONLY),
    Option("minOffsetsPerTrigger", "integer ≥ 1", whole(1), None,
           "wait for so many offsets before a micro-batch", _STREAM_ONLY),
    Option("maxTriggerDelay", "duration such as `15m`", duration_ms, duration_ms("15m"),
           "but wait no longer than this (default in ms)", _STREAM_ONLY),
    Option("minPartitions", "integer ≥ 1", whole(1), None,
           "split into at least so many tasks, if there are records enough", _BOTH),
    Option("maxRecordsPerPartition", "integer ≥ 1", whole(1), None,
           "most offsets of a task", _BOTH),
    Option("failOnDataLoss", "`true` or `false`", flag, True,
           "fail if records are gone before they were read, or go on behind the gap", _BOTH),
    Option("includeHeaders", "`true` or `false`", flag, False,
           "add the column `headers`", _BOTH),
    Option("includeValue", "`true` or `false`", flag, True,
           "`false` leaves `value` null, for jobs that only count or look at keys", _BOTH),
    Option("groupIdPrefix", "text", str, None, _NO_MEMBERSHIP, _BOTH),
    Option("kafka.group.id", "text", str, None, _NO_MEMBERSHIP, _BOTH),
    Option("kafka.client.id", "text", str, "tidelog-spark", "name in the brokers' logs", _BOTH),
    Option("kafka.isolation.level", "`read_uncommitted` or `read_committed`",
           one_of("read_uncommitted", "read_committed"), "read_uncommitted",
           "whether to leave out records of aborted and open transactions", _BOTH),
    Option("kafka.request.timeout.ms", "integer ≥ 1", whole(1), 30_000,
           "how long to try to get an answer, elections included", _BOTH),
    Option("kafka.max.partition.fetch.bytes", "integer ≥ 1", whole(1), 8 * 1024 * 1024,
           "most bytes of one fetch", _BOTH),
    Option("kafka.check.crcs", "`true` or `false`", flag, True,
           "check the checksum of every batch", _BOTH),
    Option("kafka.security.protocol", "`PLAINTEXT`", one_of("plaintext"), "plaintext",
           "anything else is refused until it is built", _BOTH),
)  # fmt: skip

_DESERIALIZER: Final = "keys and values are always bytes; cast or decode the columns"
NO_SECURITY: Final = "only PLAINTEXT is spoken yet, and a secret must not be ignored silently"
REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "kafka.interceptor.classes": "no Java client runs here",
    "kafka.key.deserializer": _DESERIALIZER,
    "kafka.value.deserializer": _DESERIALIZER,
    "kafka.key.serializer": _DESERIALIZER,
    "kafka.value.serializer": _DESERIALIZER,
    "kafka.sasl.*": NO_SECURITY,
    "kafka.ssl.*": NO_SECURITY,
}


def parse_source_options(given: Mapping[str, str], mode: str) -> SourceOptions:
    """``WrongOptions`` names all that is wrong with single options, or the first contradiction."""
    values = parse_options(TABLE, given, mode, REFUSED)
    if values["kafka.bootstrap.servers"] is None:
        raise WrongOptions("kafka.bootstrap.servers is required")
    options = SourceOptions(
        bootstrap=values["kafka.bootstrap.servers"],
        selection=_selection(values),
        start=_bound(values, "starting", EARLIEST if mode == BATCH else LATEST),
        end=_bound(values, "ending", LATEST),
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        min_offsets_per_trigger=values["minOffsetsPerTrigger"],
        max_trigger_delay_ms=values["maxTriggerDelay"],
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        fail_on_data_loss=values["failOnDataLoss"],
        include_headers=values["includeHeaders"],
        include_value=values["includeValue"],
        read_committed=values["kafka.isolation.level"] == "read_committed",
        client_id=values["kafka.client.id"],
        request_timeout_ms=values["kafka.request.timeout.ms"],
        fetch_bytes=values["kafka.max.partition.fetch.bytes"],
        check_crcs=values["kafka.check.crcs"],
    )
    _refuse_contradictions(options, mode)
    return options


def _selection(values: Mapping[str, Any]) -> Selection:
    ways = ("subscribe", "subscribePattern", "assign")
    given = [name for name in ways if values[name] is not None]
    if len(given) != 1:
        said = f"given are {' and '.join(given)}" if given else "none is given"
        raise WrongOptions(f"exactly one of {', '.join(ways)} says what to read; {said}")
    return Selection(values["subscribe"], values["subscribePattern"], values["assign"])


def _bound(values: Mapping[str, Any], side: str, default: int) -> Bound:
    # An end after the last record is simply the end; only a start can be an error.
    lenient = side == "ending" or values["startingOffsetsByTimestampStrategy"] == "latest"
    if (moment := values[f"{side}Timestamp"]) is not None:
        return ByTimestamp({}, moment, lenient)
    if (moments := values[f"{side}OffsetsByTimestamp"]) is not None:
        return ByTimestamp(moments, None, lenient)
    given: ByOffset | None = values[f"{side}Offsets"]
    return ByOffset({}, default) if given is None else given


def _refuse_contradictions(options: SourceOptions, mode: str) -> None:
    if mode == BATCH:
        if isinstance(options.start, ByOffset) and _has(options.start, LATEST):
            raise WrongOptions("startingOffsets of a batch query cannot be latest (-1)")
        if isinstance(options.end, ByOffset) and _has(options.end, EARLIEST):
            raise WrongOptions("endingOffsets cannot be earliest (-2)")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise WrongOptions(
            f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}"
        )
    for name, bound in (("starting", options.start), ("ending", options.end)):
        _refuse_foreign_places(name, bound, options.selection)


def _has(bound: ByOffset, special: int) -> bool:
    return bound.everywhere == special or special in bound.offsets.values()


def _refuse_foreign_places(side: str, bound: Bound, selection: Selection) -> None:
    named = bound.offsets if isinstance(bound, ByOffset) else bound.timestamps
    for topic, partition in sorted(named):
        is_read = selection.pattern is not None or (
            topic in selection.topics
            if selection.topics is not None
            else (topic, partition) in (selection.places or ())
        )
        if not is_read:
            raise WrongOptions(
                f"the {side} offsets name {topic}-{partition}, which this query does not read"
            )
