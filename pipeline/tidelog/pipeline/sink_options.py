"""The options of writing with ``format("tidelog")``; docs/PIPELINE.md shows the table.

Names that Spark's Kafka connector or Kafka's producer has mean the same here. What a producer can
be told and this one cannot do differently (``acks``, idempotence) is accepted with the one value
that holds, so that a job which asks for less is not given something else in silence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.pipeline.errors import WrongOptions
from tidelog.pipeline.option_table import Option, names, one_of, parse_options, whole
from tidelog.pipeline.source_options import BATCH, NO_SECURITY, STREAM

_BOTH: Final = frozenset({BATCH, STREAM})
_BATCH_ONLY: Final = frozenset({BATCH})
_STREAM_ONLY: Final = frozenset({STREAM})

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"


@dataclass(frozen=True, slots=True)
class Once:
    """Who writes exactly once: ``prefix`` of its transactional ids and its group, and which run.

    ``app_id`` and ``version`` name the run of a batch job; a stream's query and micro-batch are
    known only to its tasks.
    """

    prefix: str
    app_id: str | None
    version: int | None
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: tuple[SocketAddress, ...]
    topic: str | None
    once: Once | None
    """None: at least once."""
    compression: str
    batch_bytes: int
    linger_ms: int
    max_request_bytes: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    client_id: str


def _addresses(text: str) -> tuple[SocketAddress, ...]:
    return tuple(SocketAddress.parse(part) for part in names(text))


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


TABLE: Final = (
    Option("kafka.bootstrap.servers", "host:port, …", _addresses, None,
           "brokers to ask first; required", _BOTH),
    Option("topic", "text", _name, None,
           "where all rows go; goes before the column `topic`", _BOTH),
    Option("deliveryGuarantee", "`at-least-once` or `exactly-once`",
           one_of(AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE,
           "whether a task that is tried again, or a batch that is repeated, may write rows twice",
           _BOTH),
    Option("txnAppId", "text", _name, None,
           "with `exactly-once`: names the job, the same for every run of it", _BATCH_ONLY),
    Option("txnVersion", "integer ≥ 0", whole(0), None,
           "with `exactly-once`: numbers the run; one that is not above the last writes nothing",
           _BATCH_ONLY),
    Option("transactionalIdPrefix", "text", _name, None,
           "with `exactly-once`: begins the transactional ids and is the group that keeps the "
           "decision; without it made of the checkpoint's location, or of `txnAppId`", _BOTH),
    Option("kafka.transaction.timeout.ms", "integer ≥ 1", whole(1), 900_000,
           "with `exactly-once`: must outlast a batch and a restart of the driver", _BOTH),
    Option("kafka.compression.type", "`none`, `gzip`, `snappy`, `lz4` or `zstd`",
           one_of("none", "gzip", "snappy", "lz4", "zstd"), "none", "of record batches", _BOTH),
    Option("kafka.batch.size", "integer ≥ 1", whole(1), 512 * 1024,
           "bytes of a record batch, before compression", _BOTH),
    Option("kafka.linger.ms", "integer ≥ 0", whole(0), 1000,
           "how long rows may wait for more of their partition; looked at when rows arrive", _BOTH),
    Option("kafka.max.request.size", "integer ≥ 1", whole(1), 1024 * 1024,
           "largest row, in bytes", _BOTH),
    Option("kafka.delivery.timeout.ms", "integer ≥ 1", whole(1), 120_000,
           "how long to try to get a batch stored, elections included", _BOTH),
    Option("kafka.request.timeout.ms", "integer ≥ 1", whole(1), 30_000,
           "how long to try to get any other answer", _BOTH),
    Option("kafka.acks", "`all`", one_of("all", "-1"), "all", "it is always `all`", _BOTH),
    Option("kafka.enable.idempotence", "`true`", one_of("true"), "true", "it always is", _BOTH),
    Option("kafka.client.id", "text", str, "tidelog-spark", "name in the brokers' logs", _BOTH),
    Option("kafka.security.protocol", "`PLAINTEXT`", one_of("plaintext"), "plaintext",
           "anything else is refused until it is built", _BOTH),
    Option("checkpointLocation", "path", _name, None, "Spark's own", _STREAM_ONLY),
    Option("queryName", "text", str, None, "Spark's own", _STREAM_ONLY),
)  # fmt: skip

_SERIALIZER: Final = "rows have keys and values of type binary or string; encode the columns"
REFUSED: Final = {
    "kafka.key.serializer": _SERIALIZER,
    "kafka.value.serializer": _SERIALIZER,
    "kafka.interceptor.classes": "no Java client runs here",
    "kafka.partitioner.class": "keys go where Java's clients send them; or give a column partition",
    "kafka.transactional.id": "use deliveryGuarantee=exactly-once, and transactionalIdPrefix",
    "path": "a topic is given by the option or column topic",
    "kafka.sasl.*": NO_SECURITY,
    "kafka.ssl.*": NO_SECURITY,
}


def parse_sink_options(given: Mapping[str, str], mode: str) -> SinkOptions:
    """``WrongOptions`` names all that is wrong with single options, or the first contradiction."""
    values = parse_options(TABLE, given, mode, REFUSED)
    if values["kafka.bootstrap.servers"] is None:
        raise WrongOptions("kafka.bootstrap.servers is required")
    if values["kafka.batch.size"] > values["kafka.max.request.size"]:
        raise WrongOptions(
            f"kafka.batch.size is {values['kafka.batch.size']}, above kafka.max.request.size, "
            f"which is {values['kafka.max.request.size']}"
        )
    return SinkOptions(
        bootstrap=values["kafka.bootstrap.servers"],
        topic=values["topic"],
        once=_once(values, given, mode),
        compression=values["kafka.compression.type"],
        batch_bytes=values["kafka.batch.size"],
        linger_ms=values["kafka.linger.ms"],
        max_request_bytes=values["kafka.max.request.size"],
        delivery_timeout_ms=values["kafka.delivery.timeout.ms"],
        request_timeout_ms=values["kafka.request.timeout.ms"],
        client_id=values["kafka.client.id"],
    )


_ONLY_ONCE: Final = ("txnAppId", "txnVersion", "transactionalIdPrefix",
                     "kafka.transaction.timeout.ms")  # fmt: skip


def _once(values: Mapping[str, Any], given: Mapping[str, str], mode: str) -> Once | None:
    if values["deliveryGuarantee"] == AT_LEAST_ONCE:
        said = {name.lower() for name in given}
        for name in _ONLY_ONCE:
            if name.lower() in said:
                raise WrongOptions(
                    f"{name} is given, and is only for deliveryGuarantee=exactly-once"
                )
        return None
    if mode == BATCH:
        for name in ("txnAppId", "txnVersion"):
            if values[name] is None:
                raise WrongOptions(
                    f"{name} is missing: a batch job that writes exactly once has a txnAppId, "
                    "the same for every run, and a txnVersion that grows from run to run"
                )
        identity = f"batch:{values['txnAppId']}"
    else:
        if values["checkpointLocation"] is None:
            raise WrongOptions(
                "checkpointLocation is missing: a query that writes exactly once keeps its "
                "place there, so it must be given as an option of the query"
            )
        identity = f"stream:{values['checkpointLocation']}"
    derived = "spark-" + hashlib.sha256(identity.encode()).hexdigest()[:16]
    return Once(
        prefix=values["transactionalIdPrefix"] or derived,
        app_id=values["txnAppId"],
        version=values["txnVersion"],
        transaction_timeout_ms=values["kafka.transaction.timeout.ms"],
    )
