"""``tidelog perf`` and the verifiable clients: numbers, and runs against librdkafka's mock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tidelog.cli.failures import WrongUse
from tidelog.cli.perf import payloads_of_file
from tidelog.cli.perf_stats import CONSUMED_HEADER, Consumed, Latencies, Sent, moment, wait_s
from tidelog.cli.verifiable import Batch, VerifiableProduce

Run = Callable[..., Any]
MIB = 1024 * 1024


def test_percentiles_are_those_of_the_sorted_list() -> None:
    one = Latencies()
    for latency_ms in range(1000, 0, -1):
        one.add(latency_ms)
    assert [one.percentile_ms(p) for p in (50, 95, 99, 99.9, 100)] == [500, 950, 990, 999, 1000]
    assert (one.mean_ms, one.max_ms) == (500.5, 1000)
    assert (Latencies().mean_ms, Latencies().percentile_ms(99)) == (0, 0)


def test_the_words_of_the_producer() -> None:
    sent = Sent(10.0)
    for latency_ms in (1.0, 2.0, 3.0, 10.0):
        sent.add(MIB, latency_ms)
    assert sent.line(12.0) == (
        "4 records sent, 2.0 records/sec (2.00 MB/sec), 4.0 ms avg latency, 10.0 ms max latency."
    )
    assert sent.final_line(12.0).endswith(
        ", 10.0 ms max latency, 2 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )
    assert sent.as_object(12.0)["latency_ms"]["p50"] == 2.0


def test_the_columns_of_the_consumer() -> None:
    total = Consumed(1_700_000_000_000, records=1000, record_bytes=2 * MIB, rebalance_ms=500)
    cells = total.line(1_700_000_001_000).split(", ")
    assert len(cells) == len(CONSUMED_HEADER.split(", "))
    assert cells == [
        "2023-11-14 22:13:20:000", "2023-11-14 22:13:21:000", "2.0000", "2.0000", "1000",
        "1000.0000", "500", "500", "4.0000", "2000.0000",
    ]  # fmt: skip
    since = Consumed(1_700_000_000_500, records=600, record_bytes=MIB, rebalance_ms=500)
    detailed = total.line(1_700_000_001_000, since=since).split(", ")
    assert detailed[:2] == ["2023-11-14 22:13:21:000", "0"]
    assert detailed[2:6] == ["2.0000", "2.0000", "1000", "800.0000"]
    assert moment(1_700_000_000_007) == "2023-11-14 22:13:20:007"


@pytest.mark.parametrize(
    ("sent", "rate", "elapsed_s", "rest_s"),
    [(100, 100, 0.5, 0.5), (100, 100, 1.5, 0.0), (100, -1, 0.0, 0.0), (1, 0, 0.0, 0.0)],
)
def test_the_rate_is_kept(sent: int, rate: float, elapsed_s: float, rest_s: float) -> None:
    assert wait_s(sent, rate, elapsed_s) == rest_s


def test_payloads(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_bytes(b"a\nbb\n\nc")
    assert payloads_of_file(file, "\\n") == [b"a", b"bb", b"c"]
    assert payloads_of_file(file, "bb") == [b"a\n", b"\n\nc"]
    file.write_bytes(b"\n")
    with pytest.raises(WrongUse, match="has no payloads"):
        payloads_of_file(file, "\\n")


def test_values_and_keys() -> None:
    plain = VerifiableProduce("b", "t", 1, -1, None, None, {})
    assert (plain.value(5), plain.key(5)) == ("5", None)
    full = VerifiableProduce("b", "t", 1, -1, 9, 3, {})
    assert (full.value(5), full.key(5)) == ("9.5", "2")


def test_a_batch_knows_its_spans() -> None:
    batch = Batch()
    for partition, offset in ((1, 7), (0, 3), (1, 9), (1, 8)):
        batch.add("t", partition, offset)
    assert batch.count == 4
    assert batch.partitions()[1] == {
        "topic": "t", "partition": 1, "count": 3, "minOffset": 7, "maxOffset": 9,
    }  # fmt: skip
    assert batch.next_offsets() == {("t", 0): 4, ("t", 1): 10}


# --- against librdkafka's mock ------------------------------------------------------------------


@pytest.fixture(scope="module")
def mock() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2})
    yield producer
    producer.flush()


@pytest.fixture
def bootstrap(mock: Producer) -> str:
    (broker,) = mock.list_topics(timeout=10).brokers.values()
    return f"{broker.host}:{broker.port}"


def events(text: str, name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(row["timestamp"], int) for row in rows)
    return [row for row in rows if row["name"] == name]


def test_perf_in_and_out(tidelog: Run, bootstrap: str) -> None:
    given = ("--num-records", "500", "--record-size", "20", "-b", bootstrap)
    ran = tidelog("perf", "produce", "perf", *given)
    assert ran.code == 0
    number = r"[\d.]+(?:e[+-]\d+)?"
    last = (
        rf"500 records sent, {number} records/sec \({number} MB/sec\), {number} ms avg latency, "
        rf"{number} ms max latency, {number} ms 50th, {number} ms 95th, {number} ms 99th, "
        rf"{number} ms 99.9th\."
    )
    assert re.fullmatch(last, ran.out.splitlines()[-1])
    shown = json.loads(tidelog("perf", "produce", "perf", *given, "--json").out)
    assert (shown["records"], shown["bytes"], shown["failed"]) == (500, 10_000, 0)
    read = tidelog("perf", "consume", "perf", "--messages", "1000", "-b", bootstrap)
    assert (read.code, read.out.splitlines()[0]) == (0, CONSUMED_HEADER)
    assert read.out.splitlines()[1].split(", ")[4] == "1000"
    detailed = tidelog(
        "perf", "consume", "perf", "-n", "1000", "--show-detailed-stats", "--hide-header",
        "-b", bootstrap,
    )  # fmt: skip
    assert detailed.out.splitlines()[-1].split(", ")[4] == "1000"


def test_too_few_messages(tidelog: Run, bootstrap: str) -> None:
    tidelog("perf", "produce", "few", "-n", "3", "-b", bootstrap)
    ran = tidelog(
        "perf", "consume", "few", "-n", "9", "--timeout", "600", "--json", "-b", bootstrap
    )
    came = json.loads(ran.out)["records"]  # fewer than three if the group takes its time
    assert (ran.code, came <= 3) == (1, True)
    assert f"only {came} of 9 messages came" in ran.err
    missing = tidelog("perf", "consume", "nope", "-n", "1", "--timeout", "1", "-b", bootstrap)
    assert (missing.code, "does not exist" in missing.err) == (1, True)


def test_verifiable_clients(tidelog: Run, bootstrap: str) -> None:
    sent = tidelog(
        "verifiable-producer", "--topic", "ver", "--max-messages", "6", "--repeating-keys", "2",
        "--value-prefix", "3", "--throughput", "1000", "-b", bootstrap,
    )  # fmt: skip
    assert sent.code == 0
    done = events(sent.out, "producer_send_success")
    assert sorted((row["key"], row["value"]) for row in done) == [
        ("0", "3.0"), ("0", "3.2"), ("0", "3.4"), ("1", "3.1"), ("1", "3.3"), ("1", "3.5"),
    ]  # fmt: skip
    (data,) = events(sent.out, "tool_data")
    assert (data["sent"], data["acked"], data["target_throughput"]) == (6, 6, 1000)
    read = tidelog(
        "verifiable-consumer", "--topic", "ver", "--group-id", "g", "--max-messages", "6",
        "--verbose", "-b", bootstrap,
    )  # fmt: skip
    assert read.code == 0
    assert len(events(read.out, "record_data")) == 6
    assert sum(row["count"] for row in events(read.out, "records_consumed")) == 6
    assert all(row["success"] for row in events(read.out, "offsets_committed"))
    names = [json.loads(line)["name"] for line in read.out.splitlines()]
    assert (names[0], names[-1]) == ("startup_complete", "shutdown_complete")
    assert events(read.out, "partitions_assigned") and events(read.out, "partitions_revoked")


def test_records_that_are_not_acknowledged(tidelog: Run, bootstrap: str) -> None:
    ran = tidelog(
        "verifiable-producer", "--topic", "ver", "--max-messages", "1", "-b", bootstrap,
        "--command-property", "message.max.bytes=1000", "--value-prefix", "1" + "0" * 2000,
    )  # fmt: skip
    assert ran.code == 1
    (failed,) = events(ran.out, "producer_send_error")
    assert failed["exception"] == "MSG_SIZE_TOO_LARGE"
    assert "1 records were not acknowledged" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("perf", "produce", "t", "-n", "0"), 2),
        (("perf", "produce", "t", "--record-size", "5", "--payload-file", "f"), 2),
        (("perf", "produce", "t", "--payload-file", "/nowhere"), 2),
        (("perf", "produce", "t", "--acks", "some"), 2),
        (("perf", "produce", "t", "--compression", "squash"), 2),
        (("perf", "produce"), 2),
        (("perf", "consume", "t", "--command-property", "bogus=1"), 2),
        (("verifiable-producer",), 2),
        (("verifiable-consumer", "--topic", "t"), 2),
        (("verifiable-consumer", "--topic", "t", "--group-id", "g", "--reset-policy", "x"), 2),
    ],
)
def test_wrong_uses(tidelog: Run, arguments: tuple[str, ...], code: int) -> None:
    ran = tidelog(*arguments)
    assert ran.code == code
    assert "Traceback" not in ran.err
