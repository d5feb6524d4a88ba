"""The options of ``tidelog log dump``, and files that are not what they should be."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIRST_LOG = "00000000000000000000.log"
Run = Callable[..., Any]
Copy = Callable[..., Path]


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x40]))


@pytest.fixture
def log(golden_copy: Copy) -> Path:
    return golden_copy("segments/plain/files") / FIRST_LOG


class TestOptions:
    def test_only_batches_unless_records_are_asked_for(self, tidelog: Run, log: Path) -> None:
        lines = tidelog("log", "dump", log).out.splitlines()
        assert lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
        assert {line.split(":")[0] for line in lines[2:]} == {"baseOffset"}

    def test_deep_iteration_shows_no_data(self, tidelog: Run, log: Path) -> None:
        lines = tidelog("log", "dump", "--deep-iteration", log).out.splitlines()
        assert lines[3] == (
            "| offset: 0 CreateTime: 1700000001000 keySize: 2 valueSize: 47 sequence: -1"
            " headerKeys: []"
        )

    def test_print_data_log_implies_deep_iteration(self, tidelog: Run, log: Path) -> None:
        short = tidelog("log", "dump", "--print-data-log", log)
        long = tidelog("log", "dump", "--print-data-log", "--deep-iteration", log)
        assert short == long

    def test_without_metadata_only_key_and_value_are_left(self, tidelog: Run, log: Path) -> None:
        ran = tidelog("log", "dump", "--print-data-log", "--skip-record-metadata", log)
        assert "| key: k0 payload: kilo quebec k\n" in ran.out

    def test_max_bytes_cuts_whole_batches_and_counts_nothing_invalid(
        self, tidelog: Run, log: Path
    ) -> None:
        ran = tidelog("log", "dump", "--max-bytes", "270", log)
        assert [line.split(" ")[1] for line in ran.out.splitlines()[2:]] == ["0", "3"]
        assert ran.code == 0

    def test_several_files_in_the_order_given(self, tidelog: Run, log: Path) -> None:
        index = log.with_suffix(".index")
        ran = tidelog("log", "dump", index, log)
        found = [line for line in ran.out.splitlines() if line.startswith("Dumping")]
        assert found == [f"Dumping {index}", f"Dumping {log}"]


class TestJson:
    def test_a_batch_and_a_record(self, tidelog: Run, log: Path) -> None:
        lines = tidelog("log", "dump", "--json", "--print-data-log", log).out.splitlines()
        remark, batch, record = map(json.loads, lines[:3])
        assert remark == {"file": str(log), "type": "remark", "text": "Log starting offset: 0"}
        assert (batch["type"], batch["baseOffset"], batch["isvalid"]) == ("batch", 0, True)
        assert batch["deleteHorizonMs"] is None
        assert record["payload"] == "juliett november hotel juliett delta mike tango"

    def test_bytes_that_are_no_text_are_base64(self, tidelog: Run, golden_copy: Copy) -> None:
        log = golden_copy("segments/nulls-headers/files") / FIRST_LOG
        lines = map(
            json.loads, tidelog("log", "dump", "--json", "--print-data-log", log).out.splitlines()
        )
        record = next(line for line in lines if line.get("offset") == 8)
        assert record["key"] == {"base64": "AP/+"}
        assert len(record["headerKeys"]) == len(record["headerValues"]) == 100

    def test_a_problem_is_an_object_too(self, tidelog: Run, log: Path) -> None:
        flip(log, 100)
        ran = tidelog("log", "dump", "--json", log)
        kinds = [json.loads(line)["type"] for line in ran.out.splitlines()]
        assert kinds[:4] == ["remark", "batch", "problem", "batch"]
        assert ran.code == 1


class TestDamagedLogs:
    def test_a_flipped_bit_is_shown_and_the_walk_goes_on(self, tidelog: Run, log: Path) -> None:
        flip(log, 100)
        ran = tidelog("log", "dump", log)
        valid = [line.endswith("isvalid: true") for line in ran.out.splitlines()[2:]]
        assert valid[0] is False and all(valid[1:]) and len(valid) > 2
        assert ran.err == f"{log}: batch at 0: its checksum is wrong\n"
        assert ran.code == 1

    def test_records_that_make_no_sense_are_reported(self, tidelog: Run, log: Path) -> None:
        overwrite(log, 61, b"\xff" * 10)
        ran = tidelog("log", "dump", "--deep-iteration", log)
        assert f"{log}: records of the batch at 0: " in ran.err
        assert "| offset: 3 " in ran.out
        assert ran.code == 1

    @pytest.mark.parametrize("kept", [10, 61, 178, 200])
    def test_a_truncated_log_ends_with_invalid_bytes(
        self, tidelog: Run, log: Path, kept: int
    ) -> None:
        log.write_bytes(log.read_bytes()[:kept])
        ran = tidelog("log", "dump", log)
        whole = 179 if kept > 179 else 0
        assert ran.out.endswith(f"Found {kept - whole} invalid bytes at the end of {log.name}\n")
        assert f"no whole batch at position {whole}" in ran.err
        assert ran.code == 1

    def test_a_zero_filled_tail(self, tidelog: Run, log: Path) -> None:
        log.write_bytes(log.read_bytes()[:264] + bytes(4096))
        ran = tidelog("log", "dump", log)
        assert f"Found 4096 invalid bytes at the end of {log.name}\n" in ran.out
        assert "its length field is 0" in ran.err
        assert ran.code == 1

    def test_a_zero_filled_file(self, tidelog: Run, log: Path) -> None:
        log.write_bytes(bytes(1000))
        ran = tidelog("log", "dump", log)
        assert f"Found 1000 invalid bytes at the end of {log.name}\n" in ran.out
        assert ran.code == 1

    def test_an_old_message_format(self, tidelog: Run, log: Path) -> None:
        overwrite(log, 179 + 16, b"\x01")
        ran = tidelog("log", "dump", log)
        assert f"{log}: batch at 179: magic is 1, not 2" in ran.err
        assert ran.out.count("baseOffset") == 1
        assert ran.code == 1

    def test_a_foreign_file_under_the_name_of_a_log(self, tidelog: Run, log: Path) -> None:
        log.write_bytes(b"#!/bin/sh\necho this is not a log, however long it may be\n" * 3)
        ran = tidelog("log", "dump", "--print-data-log", log)
        assert "invalid bytes at the end" in ran.out
        assert ran.code == 1

    def test_gaps_left_by_compaction_are_told_and_no_fault(
        self, tidelog: Run, golden_copy: Copy
    ) -> None:
        log = golden_copy("segments/compact-basic-dr-large/after-1") / FIRST_LOG
        ran = tidelog("log", "dump", "--deep-iteration", log)
        assert ran.err.startswith(f"Non-consecutive offsets in {log}\n")
        assert " is followed by " in ran.err
        assert ran.code == 0


class TestWrongArguments:
    def test_a_missing_file(self, tidelog: Run, tmp_path: Path) -> None:
        ran = tidelog("log", "dump", tmp_path / FIRST_LOG)
        assert ran.code == 2
        assert "does not exist" in ran.err

    def test_a_directory(self, tidelog: Run, tmp_path: Path) -> None:
        ran = tidelog("log", "dump", tmp_path)
        assert ran.code == 2
        assert "is a directory" in ran.err

    def test_a_file_that_no_log_has(self, tidelog: Run, log: Path, tmp_path: Path) -> None:
        letter = tmp_path / "letter.txt"
        letter.write_text("Dear Sir", encoding="utf-8")
        ran = tidelog("log", "dump", log, letter)
        assert ran.code == 2
        assert f"{letter}: not the name of a file of a log" in ran.err
        assert ran.out == ""

    def test_no_file_at_all(self, tidelog: Run) -> None:
        assert tidelog("log", "dump").code == 2


class TestIndexes:
    @pytest.fixture
    def index(self, log: Path) -> Path:
        return log.with_suffix(".index")

    def test_verify_only_prints_no_entries(self, tidelog: Run, index: Path) -> None:
        ran = tidelog("log", "dump", "--verify-index-only", index, index.with_suffix(".timeindex"))
        assert [line.split(" ")[0] for line in ran.out.splitlines()] == ["Dumping", "Dumping"]
        assert (ran.code, ran.err) == (0, "")

    def test_a_wrong_position_is_found(self, tidelog: Run, index: Path) -> None:
        offset, position = struct.unpack_from(">ii", index.read_bytes())
        overwrite(index, 4, struct.pack(">i", position + 1))
        ran = tidelog("log", "dump", "--verify-index-only", index)
        assert ran.code == 1
        assert ran.err == (
            f"Mismatches in :{index}\n"
            f"  Index offset: {offset}, no batch at position {position + 1}\n"
        )

    def test_a_wrong_offset_is_found(self, tidelog: Run, index: Path) -> None:
        offset, _ = struct.unpack_from(">ii", index.read_bytes())
        overwrite(index, 0, struct.pack(">i", offset - 1))
        ran = tidelog("log", "dump", index)
        assert ran.code == 1
        assert f"  Index offset: {offset - 1}, log offset: {offset}\n" in ran.err

    def test_an_index_larger_than_its_log(self, tidelog: Run, index: Path) -> None:
        log = index.with_suffix(".log")
        log.write_bytes(log.read_bytes()[:264])
        ran = tidelog("log", "dump", index, index.with_suffix(".timeindex"))
        assert ran.code == 1
        assert "no batch at position" in ran.err
        assert "Indexed offsets not found in the log" in ran.err

    def test_a_wrong_timestamp_is_found(self, tidelog: Run, index: Path) -> None:
        times = index.with_suffix(".timeindex")
        (timestamp,) = struct.unpack_from(">q", times.read_bytes(), 12)
        overwrite(times, 12, struct.pack(">q", 5))
        ran = tidelog("log", "dump", times)
        assert ran.code == 1
        assert f"  Index timestamp: 5, log timestamp: {timestamp}\n" in ran.err
        assert "Found out of order timestamp in :" in ran.err

    def test_sanity_check(self, tidelog: Run, index: Path) -> None:
        times = index.with_suffix(".timeindex")
        ran = tidelog("log", "dump", "--index-sanity-check", index, times)
        assert f"{index} passed sanity check.\n" in ran.out
        assert f"{times} passed sanity check.\n" in ran.out
        assert ran.code == 0

    def test_a_torn_index_fails_the_sanity_check(self, tidelog: Run, index: Path) -> None:
        index.write_bytes(index.read_bytes()[:-3])
        ran = tidelog("log", "dump", "--index-sanity-check", index)
        assert ran.code == 1
        assert "not a multiple of 8" in ran.err
        assert tidelog("log", "dump", index).code == 1

    def test_an_index_without_its_log_is_printed_unchecked(self, tidelog: Run, index: Path) -> None:
        index.with_suffix(".log").unlink()
        ran = tidelog("log", "dump", index)
        assert ran.code == 1
        assert "offset: " in ran.out
        assert "is missing, so entries could not be checked" in ran.err

    def test_a_preallocated_index_has_no_entries_to_complain_about(
        self, tidelog: Run, golden_copy: Copy
    ) -> None:
        directory = golden_copy("segments/killed/killed")
        ran = tidelog("log", "dump", directory / "00000000000000000221.index")
        assert ran.out.splitlines()[1:] == ["offset: 221 position: 0"]
        assert ran.code == 0
