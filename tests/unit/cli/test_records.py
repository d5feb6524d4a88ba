"""Records as lines of text and as JSON: Kafka's rules for text, and nothing lost in JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.cli.failures import WrongUse
from tidelog.cli.record_json import from_json, to_json
from tidelog.cli.record_lines import LineFormat
from tidelog.cli.record_text import PRINTABLE, TextFormat, parse_printed
from tidelog.cli.records import BadRecord, NewRecord, ReadRecord
from tidelog.cli.start_offset import (
    FROM_THE_BEGINNING,
    FROM_THE_END,
    StartOffset,
    parse_start,
)

# --- lines to records ---------------------------------------------------------------------------

BOTH = {"parse.key": "true", "parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, b"a\tb", NewRecord(b"a\tb")),
        ({}, b"", NewRecord(b"")),
        ({}, b"\xff\x00", NewRecord(b"\xff\x00")),
        ({"parse.key": "true"}, b"k\tv\tw", NewRecord(b"v\tw", b"k")),
        ({"parse.key": "TRUE", "key.separator": "::"}, b"k::v", NewRecord(b"v", b"k")),
        ({"parse.key": "true"}, b"\t", NewRecord(b"", b"")),
        (BOTH, b"h1:v1,h2:\tk1\tv1", NewRecord(b"v1", b"k1", (("h1", b"v1"), ("h2", b"")))),
        (
            {**BOTH, "headers.delimiter": "|", "headers.separator": ";",
             "headers.key.separator": "="},
            b"a=1;a=2:3|k\tv",
            NewRecord(b"v", b"k", (("a", b"1"), ("a", b"2:3"))),
        ),
        ({**BOTH, "null.marker": "NO"}, b"NO\tNO\tNO", NewRecord(None, None, ())),
        ({**BOTH, "null.marker": "NO"}, b"h:NO\tk\tNOT", NewRecord(b"NOT", b"k", (("h", None),))),
        ({"parse.key": "true", "ignore.error": "true"}, b"alone", NewRecord(b"alone")),
        (
            {**BOTH, "ignore.error": "true"},
            b"h\tk\tv",
            NewRecord(b"v", b"k", (("h", None),)),
        ),
    ],
)  # fmt: skip
def test_lines(properties: dict[str, str], line: bytes, record: NewRecord) -> None:
    assert LineFormat.of(properties).parse(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "said"),
    [
        ({"parse.key": "true"}, b"h1", "No key separator found on line number 3: 'h1'"),
        (BOTH, b"h1", "No headers delimiter found on line number 3: 'h1'"),
        (BOTH, b"h1\tk\tv", "No header key separator found in pair 'h1' on line number 3"),
        ({**BOTH, "null.marker": "NO"}, b"NO:1\tk\tv", "key is the null marker on line number 3"),
        (BOTH, b"\xff:1\tk\tv", "not UTF-8 on line number 3"),
    ],
)
def test_lines_that_are_no_records(properties: dict[str, str], line: bytes, said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        LineFormat.of(properties).parse(line, 3)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"parse.keys": "true"}, "unknown property parse.keys; there are headers.delimiter"),
        ({"parse.key": "yes"}, "parse.key=yes: true or false"),
        ({"key.separator": ""}, "key.separator must not be empty"),
        ({"parse.headers": "true", "headers.separator": "\t"}, "must differ from one another"),
        ({"null.marker": ":"}, "null.marker must not be a separator"),
    ],
)
def test_properties_that_cannot_work(properties: dict[str, str], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        LineFormat.of(properties)


# --- records to text ----------------------------------------------------------------------------

FULL = ReadRecord("con", 0, 0, b"v1", b"k1", (("h1", b"v1"), ("h2", b"")), 1794817930280)
EMPTY = ReadRecord("con", 0, 1, None, None, (), 1794817930295)
ALL = {f"print.{what}": "true" for what in PRINTABLE}


@pytest.mark.parametrize(
    ("properties", "record", "line"),
    [
        ({}, FULL, b"v1\n"),
        ({}, EMPTY, b"null\n"),
        # These two as kafka-console-consumer 4.3.1 printed them.
        (
            ALL,
            FULL,
            b"CreateTime:1794817930280\tPartition:0\tOffset:0\tEpoch:NOT_PRESENT\t"
            b"h1:v1,h2:\tk1\tv1\n",
        ),
        (
            ALL,
            EMPTY,
            b"CreateTime:1794817930295\tPartition:0\tOffset:1\tEpoch:NOT_PRESENT\t"
            b"NO_HEADERS\tnull\tnull\n",
        ),
        ({"print.key": "true", "print.value": "false"}, FULL, b"k1\n"),
        ({"print.key": "true", "key.separator": "=", "line.separator": ";"}, FULL, b"k1=v1;"),
        ({"print.headers": "true", "headers.separator": "|"}, FULL, b"h1:v1|h2:\tv1\n"),
        ({"null.literal": "-"}, EMPTY, b"-\n"),
        (
            {"print.timestamp": "true"},
            ReadRecord("t", 0, 0, b"v", timestamp_type="LogAppendTime", timestamp_ms=5),
            b"LogAppendTime:5\tv\n",
        ),
        ({"print.timestamp": "true"}, ReadRecord("t", 0, 0, b"v"), b"NO_TIMESTAMP\tv\n"),
        (
            {"print.epoch": "true"},
            ReadRecord("t", 0, 0, b"\xff", leader_epoch=3),
            b"Epoch:3\t\xff\n",
        ),
    ],
)
def test_text(properties: dict[str, str], record: ReadRecord, line: bytes) -> None:
    assert TextFormat.of(properties).line(record) == line


def test_what_to_print() -> None:
    assert parse_printed(["key,offset", " headers"]) == {
        "print.key": "true",
        "print.offset": "true",
        "print.headers": "true",
    }
    with pytest.raises(WrongUse, match="--print size: there are timestamp"):
        parse_printed(["key,size"])
    with pytest.raises(WrongUse, match=r"unknown property print\.size"):
        TextFormat.of({"print.size": "true"})


# --- JSON ---------------------------------------------------------------------------------------

data = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), data), max_size=3).map(tuple)


@settings(derandomize=True, max_examples=200)
@given(data, data, headers, st.integers(0, 9), st.none() | st.integers(0, 2**62))
def test_what_is_printed_can_be_read(
    key: bytes | None,
    value: bytes | None,
    given_headers: tuple[tuple[str, bytes | None], ...],
    partition: int,
    timestamp_ms: int | None,
) -> None:
    record = ReadRecord("t", partition, 7, value, key, given_headers, timestamp_ms)
    line = to_json(record)
    assert "\n" not in line
    assert from_json(line.encode(), 1) == NewRecord(
        value, key, given_headers, partition, timestamp_ms
    )


def test_json_of_a_record() -> None:
    record = ReadRecord("t", 1, 2, b"\xff", "schlüssel".encode(), (("h", None),), 3)
    assert json.loads(to_json(record)) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "timestamp_type": "CreateTime",
        "leader_epoch": None,
        "key": "schlüssel",
        "value": {"base64": "/w=="},
        "headers": [["h", None]],
    }


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"{}", NewRecord(None)),
        (b'{"value": ""}', NewRecord(b"")),
        (b'{"value": "v", "headers": {"a": "1"}}', NewRecord(b"v", None, (("a", b"1"),))),
        (b'{"value": "v", "headers": null}', NewRecord(b"v")),
    ],
)
def test_short_forms(line: bytes, record: NewRecord) -> None:
    assert from_json(line, 1) == record


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"plain", "line number 4 is not JSON"),
        (b"\xff", "line number 4 is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"valeu": "v"}', "unknown field 'valeu'"),
        (b'{"value": 7}', "value must be a string"),
        (b'{"value": {"a": 1}}', "value must be a string"),
        (b'{"key": {"base64": "?"}}', "key is not base64"),
        (b'{"key": {"base64": 7}}', "key is not base64"),
        (b'{"headers": ["a"]}', "headers must be"),
        (b'{"headers": [["a", 7]]}', "header 'a' must be"),
        (b'{"headers": 7}', "headers must be"),
        (b'{"partition": -1}', "partition must be a number from 0"),
        (b'{"timestamp": "now"}', "timestamp must be a number from 0"),
        (b'{"partition": true}', "partition must be a number from 0"),
    ],
)
def test_json_that_is_no_record(line: bytes, said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        from_json(line, 4)


# --- where to begin -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", FROM_THE_BEGINNING),
        ("latest", FROM_THE_END),
        ("0", StartOffset(0)),
        ("42", StartOffset(42)),
        ("-1", StartOffset(-2001)),
        ("-10", StartOffset(-2010)),
        ("@0", StartOffset(timestamp_ms=0)),
        ("@1700000000123", StartOffset(timestamp_ms=1700000000123)),
        ("@1970-01-01T00:00:01", StartOffset(timestamp_ms=1000)),
        ("@1970-01-01T01:00:01+01:00", StartOffset(timestamp_ms=1000)),
        ("@1970-01-02", StartOffset(timestamp_ms=86_400_000)),
    ],
)
def test_starts(text: str, start: StartOffset) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "first", "1.5", "@", "@yesterday", "9" * 30, "@-5"])
def test_starts_that_are_none(text: str) -> None:
    with pytest.raises(WrongUse, match="--offset"):
        parse_start(text)
