"""What a job may say, and what it is told when it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.pipeline import segments_options, source_options
from tidelog.pipeline.errors import WrongOptions
from tidelog.pipeline.option_table import duration_ms, markdown
from tidelog.pipeline.positions import EARLIEST, LATEST
from tidelog.pipeline.segments_options import parse_segments_options
from tidelog.pipeline.source_options import (
    BATCH,
    STREAM,
    ByOffset,
    ByTimestamp,
    parse_source_options,
)
from tidelog.pipeline.versions import PySparkTooOld, check_pyspark

LEAST = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}
ROOT = Path(__file__).parents[3]


def test_the_least_that_must_be_said() -> None:
    options = parse_source_options(LEAST, BATCH)
    assert options.bootstrap == (SocketAddress("a", 1), SocketAddress("b", 2))
    assert options.selection.topics == ("t",)
    assert (options.start, options.end) == (ByOffset({}, EARLIEST), ByOffset({}, LATEST))
    assert options.fail_on_data_loss and not options.include_headers and not options.read_committed
    assert parse_source_options(LEAST, STREAM).start == ByOffset({}, LATEST)


def test_names_are_in_any_case_as_spark_gives_them() -> None:
    given = {name.lower(): value for name, value in LEAST.items()} | {"includeheaders": "TRUE"}
    assert parse_source_options(given, BATCH).include_headers


def test_times_go_before_offsets() -> None:
    offsets = {"startingOffsets": "earliest"}
    each = {"startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    everywhere = {"startingTimestamp": "7"}
    assert parse_source_options(LEAST | offsets | each, STREAM).start == (
        ByTimestamp({("t", 0): 5}, None, False)
    )
    assert parse_source_options(LEAST | offsets | each | everywhere, STREAM).start == (
        ByTimestamp({}, 7, False)
    )


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        (BATCH, {"startingOfsets": "earliest"},
         r"startingOfsets is not an option.*did you mean startingOffsets\?"),
        (BATCH, {"minPartitions": "0"}, "minPartitions is '0', and must be: integer ≥ 1"),
        (BATCH, {"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        (BATCH, {"includeHeaders": "x", "minPartitions": "y"}, "includeHeaders.*minPartitions"),
        (BATCH, {"startingOffsets": "latest"}, "cannot be latest"),
        (BATCH, {"startingOffsets": '{"t":{"0":-1}}'}, "cannot be latest"),
        (BATCH, {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        (BATCH, {"startingOffsets": '{"t":{"0":-3}}'}, "below -2"),
        (BATCH, {"startingOffsets": "{"}, "no JSON"),
        (BATCH, {"startingOffsets": '{"u":{"0":1}}'}, "name u-0, which this query does not read"),
        (BATCH, {"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger is for stream queries"),
        (STREAM, {"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        (STREAM, {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
         "minOffsetsPerTrigger is 9, above maxOffsetsPerTrigger, which is 8"),
        (STREAM, {"assign": '{"t":[0]}'}, "exactly one of .* given are subscribe and assign"),
        (STREAM, {"kafka.auto.offset.reset": "none"}, "refused: use startingOffsets"),
        (STREAM, {"kafka.key.deserializer": "x"}, "kafka.key.deserializer is refused"),
        (STREAM, {"kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config is refused"),
        (STREAM, {"kafka.ssl.truststore.location": "x"}, "only PLAINTEXT is spoken yet"),
        (STREAM, {"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol is 'SASL_SSL'"),
        (STREAM, {"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers is 'a'"),
        (STREAM, {"subscribe": ","}, "subscribe is ','"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(mode: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOptions, match=message):
        parse_source_options(LEAST | given, mode)


def test_a_secret_is_not_repeated() -> None:
    with pytest.raises(WrongOptions) as refused:
        parse_source_options(LEAST | {"kafka.sasl.jaas.config": "swordfish"}, BATCH)
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "subscribe"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(WrongOptions, match=missing):
        parse_source_options({k: v for k, v in LEAST.items() if k != missing}, BATCH)


def test_durations_have_units() -> None:
    texts = ("5", "5ms", "2s", "15m", "1h", "1d")
    assert [duration_ms(text) for text in texts] == [5, 5, 2000, 900_000, 3_600_000, 86_400_000]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path is required"),
        ({"path": "/a", "topics": "t", "topicsPattern": "t"}, "exclude each other"),
        ({"path": "/a", "startingTimestamp": "5", "endingTimestamp": "4"}, "is before"),
        ({"path": "/a", "startingOffsets": '{"t":{"0":-2}}'}, "below 0"),
        ({"path": "/a", "failOnDataLoss": "true"}, "failOnDataLoss is not an option"),
    ],
)
def test_what_is_wrong_with_segments_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOptions, match=message):
        parse_segments_options(given)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0.dev1", "4.10.1", "5.0.0"])
def test_a_pyspark_that_is_new_enough(version: str) -> None:
    check_pyspark(version)


@pytest.mark.parametrize("version", ["3.5.4", "4.0.0", "4.1.2", "nonsense"])
def test_an_older_pyspark_is_refused_with_the_version_needed(version: str) -> None:
    with pytest.raises(PySparkTooOld, match=rf"needs PySpark 4\.2 or newer.*{version}"):
        check_pyspark(version)


def test_the_documentation_shows_the_tables() -> None:
    text = (ROOT / "docs" / "PIPELINE.md").read_text(encoding="utf-8")
    assert markdown(source_options.TABLE) in text
    assert markdown(segments_options.TABLE) in text
