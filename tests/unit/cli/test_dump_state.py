"""Dumps of the small files: what they say, and what is said when they are damaged."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.dump_items import Line, write_text

Run = Callable[..., Any]
Copy = Callable[..., Path]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (
            "recovery-point-offset-checkpoint",
            "0\n1\norders 3 42\n",
            "topic: orders partition: 3 offset: 42",
        ),
        ("leader-epoch-checkpoint", "0\n1\n4 17\n", "epoch: 4 startOffset: 17"),
        (
            "partition.metadata",
            "version: 0\ntopic_id: foxbh5z4A1voHxjTmOYeJQ",
            "topicId: foxbh5z4A1voHxjTmOYeJQ",
        ),
        (
            "meta.properties",
            "#\nnode.id=1\ndirectory.id=foxbh5z4A1voHxjTmOYeJQ\nversion=1\ncluster.id=c\n",
            "version: 1 clusterId: c nodeId: 1 directoryId: foxbh5z4A1voHxjTmOYeJQ",
        ),
        (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":7}', "brokerEpoch: 7"),
    ],
)
def test_a_text_file(tidelog: Run, tmp_path: Path, name: str, content: str, line: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    ran = tidelog("log", "dump", tmp_path / name)
    assert ran.out.splitlines() == [f"Dumping {tmp_path / name}", line]
    assert ran.code == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("recovery-point-offset-checkpoint", "0\n2\norders 3 42\n"),
        ("replication-offset-checkpoint", "0\n1\norders 3 x\n"),
        ("log-start-offset-checkpoint", "9\n0\n"),
        ("cleaner-offset-checkpoint", "\0\0\0\0"),
        ("leader-epoch-checkpoint", "0\n2\n4 17\n4 18\n"),
        ("leader-epoch-checkpoint", "0\n1\nfour 17\n"),
        ("partition.metadata", "version: 0\n"),
        ("meta.properties", "version=1\n"),
    ],
)
def test_a_damaged_text_file(tidelog: Run, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    ran = tidelog("log", "dump", tmp_path / name)
    assert ran.code == 1
    assert str(tmp_path / name) in ran.err


def test_a_damaged_producer_snapshot(tidelog: Run, golden_copy: Copy) -> None:
    snapshot = next(golden_copy("segments/idempotent/files").glob("*.snapshot"))
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    ran = tidelog("log", "dump", snapshot)
    assert ran.code == 1
    assert f"{snapshot}: stored CRC is" in ran.err


def test_a_damaged_transaction_index(tidelog: Run, golden_copy: Copy) -> None:
    index = next(golden_copy("segments/txn-abort-v1/files").glob("*.txnindex"))
    index.write_bytes(index.read_bytes() + b"\0")
    ran = tidelog("log", "dump", index)
    assert ran.code == 1
    assert "not a multiple of 34" in ran.err


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3", "\ufffd"),
        (b"\xed\xa0\x80x", "\ufffdx"),  # an encoded surrogate is one sequence in Java
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xe2\x82x", "\ufffdx"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
    ],
)
def test_malformed_text_is_cut_as_java_cuts_it(raw: bytes, shown: str) -> None:
    out = io.BytesIO()
    write_text("f", [Line("record", {"key": raw})], out, io.BytesIO())
    assert out.getvalue().decode() == f"Dumping f\nkey: {shown}\n"
