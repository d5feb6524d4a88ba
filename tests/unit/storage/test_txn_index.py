"""The index of aborted transactions: Kafka's files, its search, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tidelog.kernel.ids import Offset, ProducerId
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage.index import CorruptIndex
from tidelog.storage.txn_index import (
    ENTRY_SIZE,
    AbortedTxn,
    TxnIndex,
    decode_aborted_txns,
    encode_aborted_txn,
)
from tidelog.wire.batch import headers

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
DISK = OsDisk()


def txn(first: int, last: int, stable: int, producer_id: int = 7) -> AbortedTxn:
    return AbortedTxn(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))


def index_with(path: Path, *txns: AbortedTxn) -> TxnIndex:
    index = TxnIndex(DISK, str(path))
    for each in txns:
        index.append(each)
    return index


def test_golden_files_read_back_and_their_markers_are_in_the_log() -> None:
    files = sorted(GOLDEN.rglob("*.txnindex"))
    assert len(files) == 71
    entries = 0
    for file in files:
        data = file.read_bytes()
        txns = decode_aborted_txns(data, str(file))
        assert b"".join(map(encode_aborted_txn, txns)) == data
        TxnIndex(DISK, str(file)).sanity_check(int(file.stem))
        control = {
            (header.base_offset, header.producer_id)
            for _, header in headers(file.with_suffix(".log").read_bytes())
            if header.is_control
        }
        entries += len(txns)
        if "compact" not in str(file):
            assert {(t.last_offset, t.producer_id) for t in txns} <= control, file
    assert entries > 71


def test_no_file_before_the_first_entry(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    index = TxnIndex(DISK, str(path))
    assert index.is_empty
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.sync()
    assert index.file_to_sync() is None
    index.rename(str(tmp_path / "1.txnindex"))
    index.close()
    index.delete()
    assert list(tmp_path.iterdir()) == []


def test_an_entry_is_in_the_file_once_it_is_written_back(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    index = index_with(path, txn(3, 10, 11))
    assert not path.exists()
    index.write_back()
    assert path.read_bytes() == struct.pack(">hqqqq", 0, 7, 3, 10, 11)
    index.append(txn(12, 20, 15, producer_id=8))
    index.sync()
    assert index.file_to_sync() is not None
    assert TxnIndex(DISK, str(path)).all() == [txn(3, 10, 11), txn(12, 20, 15, producer_id=8)]
    with pytest.raises(ValueError, match="cannot follow one at 20"):
        index.append(txn(12, 20, 15))


@pytest.mark.parametrize(
    ("fetch_offset", "upper", "firsts", "is_complete"),
    [
        (0, 1, [0], True),
        (0, 100, [0, 5, 30], False),
        (0, 41, [0, 5, 30], True),
        (0, 42, [0, 5, 30], False),
        (10, 30, [0, 5], True),
        (11, 30, [5], True),
        (21, 30, [], True),
        (21, 31, [30], True),
        (41, 100, [], False),
        (0, 21, [0, 5], True),
        (0, 5, [0], True),
        (0, 4, [0], True),
    ],
)
def test_collect(
    tmp_path: Path, fetch_offset: int, upper: int, firsts: list[int], is_complete: bool
) -> None:
    # The first one leaves an open transaction at 4 behind, the second and third none.
    index = index_with(
        tmp_path / "0.txnindex", txn(0, 10, 4), txn(5, 20, 30, producer_id=8), txn(30, 40, 41)
    )
    found, complete = index.collect(fetch_offset, upper)
    assert ([each.first_offset for each in found], complete) == (firsts, is_complete)


def test_truncation_goes_by_the_marker(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    index = index_with(path, txn(0, 10, 11), txn(11, 20, 21), txn(21, 30, 31))
    index.close()
    index = TxnIndex(DISK, str(path))
    index.truncate_to(31)
    assert len(path.read_bytes()) == 3 * ENTRY_SIZE
    index.truncate_to(20)
    assert TxnIndex(DISK, str(path)).all() == index.all() == [txn(0, 10, 11)]
    index.append(txn(11, 15, 16))
    index.write_back()
    assert TxnIndex(DISK, str(path)).all() == [txn(0, 10, 11), txn(11, 15, 16)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 33, "multiple of 34"),
        (struct.pack(">hqqqq", 1, 7, 3, 10, 11), "version 1"),
        (struct.pack(">hqqqq", 0, 7, 11, 10, 11), "spans 11 to 10"),
        (struct.pack(">hqqqq", 0, 7, -1, 10, 11), "spans -1 to 10"),
        (struct.pack(">hqqqq", 0, 7, 3, 10, 11) * 2, "cannot follow 10"),
    ],
)
def test_damage_is_named_and_can_be_started_over(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "0.txnindex"
    path.write_bytes(data)
    index = TxnIndex(DISK, str(path))
    with pytest.raises(CorruptIndex, match=rf"0\.txnindex.*{message}"):
        index.sanity_check(0)
    index.reset()
    assert path.read_bytes() == b""
    index.append(txn(3, 10, 11))
    index.write_back()
    assert len(path.read_bytes()) == ENTRY_SIZE


def test_a_marker_below_the_segment_is_damage(tmp_path: Path) -> None:
    index = index_with(tmp_path / "0.txnindex", txn(3, 10, 11))
    index.sanity_check(10)
    with pytest.raises(CorruptIndex, match="starts at 11"):
        index.sanity_check(11)


def test_rename_moves_the_file_and_delete_removes_it(tmp_path: Path) -> None:
    index = index_with(tmp_path / "0.txnindex", txn(3, 10, 11))
    index.rename(str(tmp_path / "0.txnindex.deleted"))
    index.append(txn(11, 12, 13))
    index.unload()
    assert len(index.all()) == 2
    index.delete()
    assert list(tmp_path.iterdir()) == []
