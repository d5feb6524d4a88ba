"""Guards of the cleaner, each removed on purpose; a test must notice.

python tests/support/cleaner_mutants.py [name ...]
"""

from __future__ import annotations

import sys

from mutants import Mutant, run_all

ROOM = "storage/tidelog/storage"
CRASHES = "tests/unit/storage/cleaner/test_swap_crashes.py"
PASS = "tests/unit/storage/cleaner/test_cleaning.py"
PHASES = "tests/unit/storage/cleaner/test_swap_phases.py"
MODEL = "tests/properties/test_compaction_model.py"
GOLDEN = "tests/unit/storage/cleaner/test_golden_compaction.py"

MUTANTS = [
    Mutant(
        "swap-before-it-is-durable",
        "KAFKA-6264: the old files leave before the new ones can be found",
        f"{ROOM}/swapping.py",
        "        yield\n        self._retire(old, now_ms)\n",
        "        self._retire(old, now_ms)\n",
        (CRASHES,),
    ),
    Mutant(
        "new-name-before-the-old-is-gone",
        "an old segment comes back beside what replaces it",
        f"{ROOM}/swapping.py",
        "        self._retire(old, now_ms)\n        yield\n",
        "        self._retire(old, now_ms)\n",
        (CRASHES,),
    ),
    Mutant(
        "cut-in-the-middle-of-a-swap",
        "what a truncation took away comes back from the files of the swap",
        f"{ROOM}/log.py",
        "    def _announce_truncation(self, end: Offset) -> None:\n        self.finish_swap()\n",
        "    def _announce_truncation(self, end: Offset) -> None:\n",
        (PHASES,),
    ),
    Mutant(
        "removal-in-the-middle-of-a-swap",
        "segments that went come back from the files of the swap",
        f"{ROOM}/log.py",
        "        self.finish_swap()\n        # The start moves first",
        "        # The start moves first",
        (PHASES,),
    ),
    Mutant(
        "no-file-for-an-empty-transaction-index",
        "a restart takes an old index for the new one",
        f"{ROOM}/cleaner/output.py",
        "        self._disk.open(self._path(TXN_INDEX_SUFFIX), create=True).close()\n",
        "",
        (CRASHES,),
    ),
    Mutant(
        "restart-removes-new-indexes",
        "an index that got its name before its log did is thrown away",
        f"{ROOM}/tidy.py",
        "(name.base_offset == start and old_is_there)",
        "name.base_offset == start",
        (CRASHES,),
    ),
    Mutant(
        "files-not-synced",
        "a cleaned segment is found torn after a power failure",
        f"{ROOM}/cleaner/output.py",
        "            file.sync()\n",
        "",
        (CRASHES,),
    ),
    Mutant(
        "recovery-point-stays",
        "recovery takes the gaps of compaction for losses",
        f"{ROOM}/log_dir.py",
        "        log.on_swapping = self._raise_recovery_point\n",
        "",
        (CRASHES, MODEL),
    ),
    Mutant(
        "local-rule-only",
        "hazard 23: tombstones and markers go while another replica may need them",
        f"{ROOM}/cleaner/filtering.py",
        "            is_held = is_over & (opened.offset >= floor)\n",
        "            is_held = is_over & (opened.offset < 0)\n",
        (PASS, MODEL),
    ),
    Mutant(
        "marker-below-no-floor",
        "hazard 23: the same for markers",
        f"{ROOM}/cleaner/filtering.py",
        "if discards and header.last_offset >= rules.clean_floor:",
        "if discards and header.last_offset < 0:",
        (PASS,),
    ),
    Mutant(
        "horizon-in-the-past",
        "KIP-534: a tombstone goes with the next pass",
        f"{ROOM}/cleaner/filtering.py",
        "return horizon is not None and horizon <= self.now_ms",
        "return horizon is not None",
        (PASS, MODEL),
    ),
    Mutant(
        "marker-before-its-data",
        "a transaction whose marker went is open for ever",
        f"{ROOM}/cleaner/transactions.py",
        "                return (header.producer_id, header.base_offset) not in self._met\n",
        "                return True\n",
        (MODEL, GOLDEN),
    ),
    Mutant(
        "aborted-data-stays",
        "an aborted record replaces a committed one",
        f"{ROOM}/cleaner/transactions.py",
        "        self._met.add((txn.producer_id, txn.last_offset))\n        return True\n",
        "        self._met.add((txn.producer_id, txn.last_offset))\n        return False\n",
        (PASS, MODEL),
    ),
    Mutant(
        "producers-are-forgotten",
        "KAFKA-17076: sequences do not survive a restart",
        f"{ROOM}/cleaner/filtering.py",
        "        return header.last_offset == last.last_data_offset\n",
        "        return False\n",
        (MODEL, GOLDEN),
    ),
    Mutant(
        "end-of-the-pass-is-forgotten",
        "KAFKA-17076: the last batch of the cleaned part goes",
        f"{ROOM}/cleaner/filtering.py",
        "if header.next_offset == self.upper_bound:",
        "if header.next_offset < 0:",
        (PASS,),
    ),
    Mutant(
        "open-transactions-are-cleaned",
        "KAFKA-13194: cleaning above the last stable offset",
        f"{ROOM}/cleaner/plan.py",
        "    if log.last_stable_offset < log.high_watermark:\n",
        "    if log.last_stable_offset < 0:\n",
        (PASS, MODEL),
    ),
    Mutant(
        "unreplicated-records-are-cleaned",
        "KAFKA-13194: cleaning above the high watermark",
        f"{ROOM}/cleaner/plan.py",
        "    if log.high_watermark < log.end_offset:\n",
        "    if log.high_watermark < 0:\n",
        ("tests/unit/storage/cleaner/test_plan.py",),
    ),
    Mutant(
        "swap-into-another-log",
        "a truncated log gets its old records back",
        f"{ROOM}/cleaner/cleaning.py",
        "        changed = self.abort_reason or self._what_changed()\n",
        "        changed = self.abort_reason\n",
        (PASS,),
    ),
    Mutant(
        "map-ends-anywhere",
        "what lies behind the map is dropped",
        f"{ROOM}/cleaner/filtering.py",
        "        return keep | is_behind\n",
        "        return keep\n",
        (PASS,),
    ),
    Mutant(
        "damage-is-believed",
        "a damaged batch decides what is dropped",
        f"{ROOM}/cleaner/chunks.py",
        "if not is_sound or crc32c(view[at + CRC_START : behind]) != header.crc:",
        "if not is_sound:",
        (PASS,),
    ),
]


if __name__ == "__main__":
    sys.exit(run_all(MUTANTS, sys.argv[1:]))
