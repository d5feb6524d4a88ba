"""Guards of groups, transactions and producers against the hazards of coordination (24 to 36).

    python tests/support/coordination_mutants.py [name ...]

takes each guard out in a copy and runs what is known to notice. The numbers are those of the list
of hazards. What a log must do for producers is in ``cluster_mutants`` too.
"""

from __future__ import annotations

import sys

from mutants import Mutant, run_all

_TRANSACTIONS = "tests/simulation/test_transactions.py::test_"
_MACHINE = "tests/unit/coordinator/transactions"
_VERIFICATION = "tests/unit/storage/test_txn_verification.py"
_PRODUCERS = "tests/unit/storage/test_producer_state.py"
_STORAGE_HAZARDS = "tests/unit/storage/test_storage_hazards.py::test_"
_OFFSETS = "tests/unit/coordinator/test_offsets.py"
_TRANSCRIPTS = "tests/unit/coordinator/test_group_transcripts.py"

_STATE = "storage/tidelog/storage/producer_state.py"
_ENDING = "coordinator/tidelog/coordinator/transactions/ending.py"
_CORE = "coordinator/tidelog/coordinator/transactions/core.py"

MUTANTS = [
    Mutant(
        "a-window-of-one-batch",
        "hazard 24",
        _STATE,
        "        if len(entry.batches) > WINDOW:",
        "        if len(entry.batches) > 1:",
        (_PRODUCERS, _VERIFICATION),
    ),
    Mutant(
        "producers-go-with-their-segments",
        "hazard 25",
        "storage/tidelog/storage/log.py",
        "        self.raise_log_start(start)\n"
        "        for segment in self.segments.remove_first(count):",
        "        self.raise_log_start(start)\n"
        "        for entry in list(self.producers.states.entries()):\n"
        "            if entry.last_data_offset is not None and entry.last_data_offset < start:\n"
        "                del self.producers.states._entries[entry.producer_id]\n"
        "        for segment in self.segments.remove_first(count):",
        (f"{_STORAGE_HAZARDS}25_retention_changes_no_answer_about_duplicates",),
    ),
    Mutant(
        "followers-check-producers",
        "hazard 26",
        _STATE,
        "        entry = self._entry_at(header)\n        entry.batches.append",
        "        if isinstance(self.check(header), ErrorCode):\n"
        "            raise ValueError(header)\n"
        "        entry = self._entry_at(header)\n        entry.batches.append",
        (_PRODUCERS, _VERIFICATION),
    ),
    Mutant(
        "a-marker-is-no-sign-of-life",
        "hazard 27",
        _STATE,
        "        entry.last_timestamp = header.max_timestamp\n        first_offset",
        "        first_offset",
        (_PRODUCERS,),
    ),
    Mutant(
        "anybody-may-open-a-transaction",
        "hazard 28",
        "storage/tidelog/storage/txn_verification.py",
        "        if verification is None or self._held.get(header.producer_id) is not"
        " verification:\n            return ErrorCode.INVALID_TXN_STATE\n",
        "        if verification is None:\n            return None\n",
        (_VERIFICATION, "tests/unit/replication/test_transactions.py"),
    ),
    Mutant(
        "a-verification-outlives-its-transaction",
        "hazard 28",
        _STATE,
        "        self.verifications.ended(header.producer_id, header.producer_epoch)\n",
        "",
        (_VERIFICATION, "tests/unit/replication/test_transactions.py"),
    ),
    Mutant(
        "what-nobody-ends-stays-open",
        "hazard 28",
        _CORE,
        "            due_ms = self.value.start_ms + self.value.timeout_ms + 1",
        "            due_ms = self.value.start_ms + 100 * self.value.timeout_ms + 1",
        ("transactions:1", _MACHINE),
    ),
    Mutant(
        "any-epoch-may-end",
        "hazard 29",
        _ENDING,
        "        if request.producer_epoch != core.value.producer_epoch:",
        "        if False:",
        (
            "transactions:2",
            f"{_TRANSACTIONS}a_delayed_end_does_not_end_the_next_transaction",
            _MACHINE,
        ),
    ),
    Mutant(
        "no-epoch-for-each-transaction",
        "hazard 29",
        _ENDING,
        "        epoch, last = _next_epoch(value), value.producer_epoch",
        "        epoch, last = value.producer_epoch, value.producer_epoch",
        (_MACHINE,),
    ),
    Mutant(
        "a-coordinator-that-was-replaced-judges",
        "hazard 29",
        "coordinator/tidelog/coordinator/transactions/transactions.py",
        "        if self.may_be_replaced:",
        "        if False:",
        (_MACHINE, "tests/simulation/test_cut_off_brokers.py"),
    ),
    Mutant(
        "a-marker-that-comes-again-ends-the-next-transaction",
        "hazards 29 and 30",
        _STATE,
        "        return entry is not None and entry.epoch == producer_epoch\n",
        "        return False\n",
        ("tests/unit/replication/test_transactions.py", _PRODUCERS, _VERIFICATION),
    ),
    Mutant(
        "a-marker-that-was-there-is-a-failure",
        "hazard 30",
        _ENDING,
        "        ErrorCode.INVALID_PRODUCER_EPOCH,\n    }\n)",
        "    }\n)",
        (_MACHINE,),
    ),
    Mutant(
        "a-time-out-does-not-fence",
        "hazard 31",
        _ENDING,
        "        _S.PREPARE_ABORT, producer_epoch=_next_epoch(core.value),"
        " next_producer_id=NO_PRODUCER_ID",
        "        _S.PREPARE_ABORT, producer_epoch=core.value.producer_epoch,"
        " next_producer_id=NO_PRODUCER_ID",
        ("transactions:1", _MACHINE),
    ),
    Mutant(
        "epochs-are-used-up",
        "hazard 31",
        _CORE,
        "LAST_EPOCH: Final = 32766",
        "LAST_EPOCH: Final = 32767",
        (_MACHINE,),
    ),
    Mutant(
        "stable-before-the-marker-is-replicated",
        "hazard 32",
        _STATE,
        "            if marker_offset >= high_watermark and (unstable is None",
        "            if False and (unstable is None",
        ("tests/unit/replication/test_cluster_reads.py", _PRODUCERS),
    ),
    Mutant(
        "offsets-in-doubt-are-told",
        "hazard 33",
        "coordinator/tidelog/coordinator/offsets.py",
        "        if require_stable and self.is_pending(group, place):",
        "        if False:",
        (_OFFSETS,),
    ),
    Mutant(
        "stable-offsets-do-not-wait-for-commits",
        "hazard 33",
        "coordinator/tidelog/coordinator/runtime/group_shard.py",
        "        if under_way is None:\n            return None\n        return _then(",
        "        if True:\n            return None\n        return _then(",
        ("tests/unit/coordinator/test_group_shard.py",),
    ),
    Mutant(
        "nobody-waits-for-stable-offsets",
        "hazard 33",
        "broker/tidelog/broker/handlers/offset_fetch.py",
        "        return self._wait(call, waits, _SETTLES_WITHIN_S if names_all else None)",
        "        return self._answer(call, {})",
        ("tests/unit/broker/test_offset_fetch.py",),
    ),
    Mutant(
        "a-commit-is-answered-before-it-is-replicated",
        "hazard 33",
        "coordinator/tidelog/coordinator/runtime/shard_log.py",
        "        self._flights[flight] = None\n",
        "        self._flights[flight] = None\n        flight.finish(ErrorCode.NONE)\n",
        ("groups:2", "tests/unit/coordinator/test_shard_runtime.py"),
    ),
    Mutant(
        "any-generation-may-commit",
        "hazard 33",
        "coordinator/tidelog/coordinator/commit_checks.py",
        "    if error is ErrorCode.NONE and sender.generation != group.generation:",
        "    if False:",
        (_OFFSETS,),
    ),
    Mutant(
        "any-epoch-may-commit",
        "hazard 33",
        "coordinator/tidelog/coordinator/consumer_commit_checks.py",
        "    if epoch == member.epoch:\n",
        "    if True:\n",
        ("tests/unit/coordinator/consumer/test_consumer_offsets.py",),
    ),
    Mutant(
        "a-partition-is-given-away-before-it-is-released",
        "one owner",
        "coordinator/tidelog/coordinator/consumer/core.py",
        "            return owner == member_id\n",
        "            return True\n",
        ("groups:6", "tests/unit/coordinator/consumer"),
    ),
    Mutant(
        "a-slow-write-is-as-good-as-replicated",
        "one owner; found by a seed: a coordinator that was cut off told of an epoch of its own",
        "coordinator/tidelog/coordinator/consumer/core.py",
        "        write = self.writes.get(write_id)\n",
        "        write = self.writes.pop(write_id, None)\n",
        ("groups:510351", "tests/unit/coordinator/consumer"),
    ),
    Mutant(
        "who-asks-again-is-told-what-is-not-replicated",
        "one owner",
        "coordinator/tidelog/coordinator/consumer/core.py",
        "        if write.is_slow:\n            self._send_away(write)\n",
        "        if write.is_slow:\n            self.effects += write.answers\n",
        ("tests/unit/coordinator/consumer",),
    ),
    Mutant(
        "who-relied-on-a-lost-write-is-told-with-the-next",
        "one owner",
        "coordinator/tidelog/coordinator/consumer/core.py",
        "                write.answers += heir.answers\n                heir.answers = []\n",
        "                pass\n",
        ("tests/unit/coordinator/consumer",),
    ),
    Mutant(
        "a-slow-write-never-ends",
        "liveness of groups",
        "coordinator/tidelog/coordinator/runtime/pending_append.py",
        "        if self._is_slow:\n            self.late()\n",
        "",
        ("tests/unit/coordinator/test_group_shard.py",),
    ),
    Mutant(
        "offsets-in-use-expire",
        "hazard 34",
        "coordinator/tidelog/coordinator/offset_expiry.py",
        "    if in_use is None or place[0] in in_use:\n        return None\n",
        "",
        (_OFFSETS,),
    ),
    Mutant(
        "ids-that-nobody-joins-with-pile-up",
        "hazard 35",
        "coordinator/tidelog/coordinator/classic/core.py",
        "        while len(self.pending) >= self.settings.max_pending_members:\n"
        "            self.drop_pending(next(iter(self.pending)))\n",
        "",
        (_TRANSCRIPTS, "tests/unit/coordinator/test_group_properties.py"),
    ),
    Mutant(
        "an-error-answers-offset-0",
        "hazard 36",
        "coordinator/tidelog/coordinator/offsets.py",
        "    offset: int = NO_COMMITTED_OFFSET\n",
        "    offset: int = 0\n",
        (_OFFSETS, "tests/unit/coordinator/test_group_golden.py"),
    ),
    Mutant(
        "what-was-given-up-is-served-late",
        "found by chaos: an older commit came behind a newer one",
        "broker/tidelog/broker/session.py",
        "            self._is_abandoned = self._connection.has_hung_up\n",
        "",
        ("tests/unit/broker/test_session.py",),
    ),
]


if __name__ == "__main__":
    sys.exit(run_all(MUTANTS, sys.argv[1:]))
