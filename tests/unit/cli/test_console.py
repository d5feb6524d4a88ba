"""``tidelog produce`` and ``consume`` against librdkafka's own mock of a cluster."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tidelog.cli.console import input_lines

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def mock() -> Iterator[Producer]:
    """The mock lives as long as this client."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2})
    yield producer
    producer.flush()


@pytest.fixture
def bootstrap(mock: Producer) -> str:
    (broker,) = mock.list_topics(timeout=10).brokers.values()
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def produce(tidelog: Run, bootstrap: str) -> Run:
    def run(topic: str, stdin: bytes, *options: str) -> Any:
        return tidelog("produce", topic, "-b", bootstrap, *options, stdin=stdin)

    return run


@pytest.fixture
def consume(tidelog: Run, bootstrap: str) -> Run:
    def run(*arguments: str) -> Any:
        return tidelog("consume", *arguments, "-b", bootstrap)

    return run


def test_lines_in_lines_out(produce: Run, consume: Run) -> None:
    written = produce("lines", b"one\ntwo\r\n\nlast", "-p", "0")
    assert (written.code, written.out, written.err) == (0, "", "")
    read = consume("lines", "--from-beginning", "--until-end")
    assert (read.code, read.out) == (0, "one\ntwo\n\nlast\n")
    assert read.err == "Processed a total of 4 messages\n"


def test_everything_a_record_has(produce: Run, consume: Run) -> None:
    given = ("-p", "1", "-k", "key", "-H", "a=1", "-H", "b=", "--timestamp", "5", "--json")
    written = json.loads(produce("full", b"value\n", *given).out)
    del written["timestamp"]  # the mock makes one up
    assert written == {"topic": "full", "partition": 1, "offset": 0}
    read = json.loads(consume("full", "--from-beginning", "-n", "1", "--json").out)
    del read["leader_epoch"]
    assert read == {
        "topic": "full",
        "partition": 1,
        "offset": 0,
        "timestamp": 5,
        "timestamp_type": "CreateTime",
        "key": "key",
        "value": "value",
        "headers": [["a", "1"], ["b", ""]],
    }
    shown = consume("full", "--from-beginning", "-n", "1", "--print", "key,headers,partition")
    assert shown.out == "Partition:1\ta:1,b:\tkey\tvalue\n"


def test_json_goes_round(produce: Run, consume: Run) -> None:
    lines = b'{"key": {"base64": "/w=="}, "value": null, "partition": 2}\n{"value": "v"}\n'
    assert produce("round", lines, "--format", "json", "-p", "2").code == 0
    printed = consume("round", "--from-beginning", "--until-end", "--format", "json").out
    assert produce("again", printed.encode(), "--format", "json").code == 0
    again = consume("again", "--from-beginning", "--until-end", "--json").out.splitlines()
    assert [(r["key"], r["value"], r["partition"]) for r in map(json.loads, again)] == [
        ({"base64": "/w=="}, None, 2),
        (None, "v", 2),
    ]


def test_keys_go_where_java_puts_them(produce: Run) -> None:
    """murmur2 of these keys, modulo the mock's four partitions, as Java's client does it."""
    reports = produce("keyed", b"21=a\nfoobar=b\n", "-K", "=", "--json", "--sync").out.splitlines()
    assert [json.loads(line)["partition"] for line in reports] == [
        (-973932308 & 0x7FFFFFFF) % 4,
        (-790332482 & 0x7FFFFFFF) % 4,
    ]


def test_starts_and_ends(produce: Run, consume: Run) -> None:
    for number in range(3):
        produce("ten", f"{number}\n".encode(), "-p", "0", "--timestamp", str(number + 1), "--sync")
    at = ("ten", "-p", "0", "--until-end")
    assert consume(*at, "--offset", "1").out == "1\n2\n"
    assert consume(*at, "--offset", "-1").out == "2\n"
    assert consume(*at, "--from-beginning", "--max-messages", "2").out == "0\n1\n"
    assert consume("ten", "--max-messages", "0").out == ""
    assert consume("ten", "--timeout-ms", "300").out == ""
    assert consume("--include", "te.", "--from-beginning", "--until-end").out == "0\n1\n2\n"


def test_as_a_member_of_a_group(produce: Run, consume: Run) -> None:
    produce("shared", b"0\n1\n2\n", "-p", "0")
    as_member = ("--group", "g", "--from-beginning", "--timeout-ms", "20000")
    assert consume("shared", *as_member, "-n", "2").out == "0\n1\n"


def test_a_cluster_without_groups_is_no_riddle(
    produce: Run, consume: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce("shared", b"0\n")
    monkeypatch.setattr("tidelog.cli.ask.Connection.serves", lambda *_: False)
    ran = consume("shared", "--group", "g")
    assert (ran.code, "serves no consumer groups; leave out --group" in ran.err) == (1, True)


def test_a_bad_line_ends_it_after_what_came_before(produce: Run, consume: Run) -> None:
    ran = produce("bad", b"a=1\nb\nc=3\n", "-K", "=", "-p", "0")
    assert (ran.code, ran.err) == (1, "No key separator found on line number 2: 'b'\n")
    assert consume("bad", "--from-beginning", "--until-end").out == "1\n"


def test_a_record_that_cannot_be_delivered(produce: Run) -> None:
    """The mock has four partitions."""
    ran = produce("few", b"a\n", "-p", "77", "--command-property", "message.timeout.ms=1000")
    assert ran.code == 1
    assert "partition" in ran.err.lower()


def test_what_is_not_there(consume: Run, produce: Run) -> None:
    ran = consume("nope", "-n", "1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Topic 'nope' does not exist; tidelog topic list")
    produce("there", b"a\n")
    ran = consume("there", "-p", "9")
    assert (ran.code, ran.err) == (1, "Topic 'there' has no partition 9; there are 0 to 3\n")


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_nobody_there(tidelog: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("tidelog.cli.client.REACH_S", 0.5)
    ran = tidelog(command, "t", "-b", "127.0.0.1:1")
    assert ran.code == 1
    assert ran.err.startswith("no node answers at 127.0.0.1:1 (")
    assert ran.err.endswith("tidelog up starts one\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("produce",), "name a topic"),
        (("produce", "a", "--topic", "b"), "two topics were given"),
        (("produce", "t", "--acks", "2"), "--acks"),
        (("produce", "t", "--compression", "rar"), "--compression"),
        (("produce", "t", "--property", "parse.key"), "--property parse.key: must be name=value"),
        (("produce", "t", "--property", "parse.keys=true"), "unknown property parse.keys"),
        (("produce", "t", "--header", "a"), "--header a: must be name=value"),
        (("produce", "t", "--format", "json", "-K", "="), "are for --format text"),
        (("produce", "t", "--command-property", "bogus=1"), "No such configuration property"),
        (("produce", "t", "--command-config", "/nowhere"), "does not exist"),
        (("produce", "t", "-b", "nowhere"), "--bootstrap-server"),
        (("produce", "t", "--timestamp", "-5"), "--timestamp"),
        (("consume",), "name a topic, or give --include"),
        (("consume", "t", "--include", "u"), "name a topic, or give --include"),
        (("consume", "t", "--from-beginning", "--offset", "1"), "not both"),
        (("consume", "t", "--offset", "first"), "--offset first"),
        (("consume", "t", "--group", "g", "-p", "0"), "a group chooses"),
        (("consume", "t", "--group", "g", "--offset", "7"), "a group chooses"),
        (("consume", "t", "--json", "--print", "key"), "are for --format text"),
        (("consume", "t", "--print", "size"), "--print size"),
        (("consume", "t", "--isolation-level", "none"), "--isolation-level"),
        (("consume", "t", "--max-messages", "-1"), "--max-messages"),
    ],
)
def test_wrong_uses(tidelog: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = tidelog(*arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())


def test_a_pattern_that_is_none(consume: Run) -> None:
    ran = consume("--include", "a(", "-n", "1")
    assert (ran.code, ran.err.startswith("--include a(")) == (2, True)


def test_a_settings_file_is_read(tidelog: Run, bootstrap: str, tmp_path: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("no.such.thing=1\n", encoding="utf-8")
    ran = tidelog("consume", "t", "-b", bootstrap, "--command-config", file)
    assert (ran.code, "no.such.thing" in ran.err) == (2, True)


def test_a_prompt_only_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(input_lines(io.BytesIO(b"a\r\nb\n\nc"), prompt=True)) == [b"a", b"b", b"", b"c"]
    assert capsys.readouterr().out == ">" * 5
    list(input_lines(io.BytesIO(b"a\n"), prompt=False))
    assert capsys.readouterr().out == ""
