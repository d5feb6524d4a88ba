"""What a job that writes may say, and what it is told when it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline import sink_options
from tidelog.pipeline.errors import WrongOptions, WrongRows
from tidelog.pipeline.option_table import markdown
from tidelog.pipeline.sink_columns import check_columns
from tidelog.pipeline.sink_options import parse_sink_options
from tidelog.pipeline.source_options import BATCH, STREAM

LEAST = {"kafka.bootstrap.servers": "a:1,b:2"}
ONCE = {"deliveryGuarantee": "exactly-once"}
ROOT = Path(__file__).parents[3]


def test_the_least_that_must_be_said() -> None:
    options = parse_sink_options(LEAST, BATCH)
    assert options.once is None and options.topic is None and options.compression == "none"
    assert parse_sink_options({**LEAST, "checkpointlocation": "/c", "queryname": "q"}, STREAM)


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        (BATCH, {"topics": "t"}, r"topics is not an option .*did you mean topic\?"),
        (BATCH, {"topic": " "}, "topic is ' '"),
        (BATCH, {"deliveryGuarantee": "often"}, "deliveryGuarantee is 'often'"),
        (BATCH, {"kafka.acks": "1"}, "kafka.acks is '1', and must be: `all`"),
        (BATCH, {"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence is 'false'"),
        (BATCH, {"kafka.compression.type": "zip"}, "kafka.compression.type is 'zip'"),
        (BATCH, {"kafka.batch.size": "2000000"}, "above kafka.max.request.size"),
        (BATCH, {"kafka.linger.ms": "-1"}, "kafka.linger.ms is '-1'"),
        (BATCH, {"kafka.key.serializer": "x"}, "kafka.key.serializer is refused"),
        (BATCH, {"kafka.partitioner.class": "x"}, "or give a column partition"),
        (BATCH, {"kafka.transactional.id": "x"}, "use deliveryGuarantee=exactly-once"),
        (BATCH, {"path": "/x"}, "path is refused"),
        (STREAM, {"kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config is refused"),
        (STREAM, {"kafka.ssl.truststore.location": "x"}, "only PLAINTEXT is spoken yet"),
        (STREAM, {"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol is 'SASL_SSL'"),
        (BATCH, {"txnAppId": "a"}, "txnAppId is given, and is only for deliveryGuarantee"),
        (BATCH, {"transactionalIdPrefix": "a"}, "transactionalIdPrefix is given, and is only"),
        (BATCH, {"checkpointLocation": "/c"}, "checkpointLocation is for stream queries"),
        (BATCH, ONCE, "txnAppId is missing"),
        (BATCH, {**ONCE, "txnAppId": "a"}, "txnVersion is missing"),
        (BATCH, {**ONCE, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion is '-1'"),
        (STREAM, ONCE, "checkpointLocation is missing"),
        (STREAM, {**ONCE, "txnAppId": "a"}, "txnAppId is for batch queries"),
    ],
)
def test_what_is_wrong_is_named(mode: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOptions, match=message):
        parse_sink_options(LEAST | given, mode)


def test_a_broker_must_be_given() -> None:
    with pytest.raises(WrongOptions, match=r"kafka.bootstrap.servers is required"):
        parse_sink_options({}, BATCH)


def test_who_writes_once_has_a_name_of_its_own() -> None:
    def prefix(mode: str, **given: str) -> str:
        once = parse_sink_options({**LEAST, **ONCE, **given}, mode).once
        assert once is not None
        return once.prefix

    stream = prefix(STREAM, checkpointLocation="/c")
    assert stream == prefix(STREAM, checkpointLocation="/c")
    assert stream != prefix(STREAM, checkpointLocation="/d")
    job = prefix(BATCH, txnAppId="/c", txnVersion="1")
    assert job == prefix(BATCH, txnAppId="/c", txnVersion="2") != stream
    assert prefix(STREAM, checkpointLocation="/c", transactionalIdPrefix="mine") == "mine"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("value", "int")], "column value is of type int, and must be binary or string"),
        ([("key", "binary")], "column value is missing"),
        ([("value", "binary"), ("partition", "bigint")], "column partition is of type bigint"),
        ([("value", "binary"), ("timestamp", "bigint")], "must be timestamp"),
        ([("value", "binary"), ("headers", "map<string,binary>")], "must be array<struct<key"),
        ([("value", "binary"), ("hedaers", "x"), ("key", "int")], "column hedaers.*column key"),
        ([("value", "binary"), ("value", "binary")], "column value is there twice"),
    ],
)
def test_wrong_columns_are_named(columns: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(WrongRows, match=message):
        check_columns(columns, "t")


def test_columns_that_are_right() -> None:
    headers = "array<struct<key:string,value:binary>>"
    check_columns([("value", "string collate UNICODE"), ("headers", headers)], "t")
    check_columns([("value", "binary"), ("topic", "string"), ("offset", "bigint")], None)
    with pytest.raises(WrongRows, match="no topic is given"):
        check_columns([("value", "binary")], None)


def test_the_documentation_shows_the_table() -> None:
    text = (ROOT / "docs" / "PIPELINE.md").read_text(encoding="utf-8")
    assert markdown(sink_options.TABLE) in text
