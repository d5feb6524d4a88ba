"""Guards of replication, storage, controller and broker against the hazards of replicated logs.

    python tests/support/cluster_mutants.py [name ...]

takes each guard out in a copy and runs what is known to notice. The numbers are those of the list
of hazards: 1–12 replication, 13–14 storage, 38–44 our own design; the rest are rules of the
controller. Raft's own guards are in ``raft_mutants``.
"""

from __future__ import annotations

import sys

from mutants import Mutant, run_all

_SCENARIOS = "tests/simulation/test_scenarios.py::test_"
_DISKS = "tests/simulation/test_disk_scenarios.py::test_"
_TRANSCRIPTS = "tests/unit/replication/test_transcripts.py"
_REPLICATION = "tests/unit/replication/test_cluster.py"
_STORAGE = "tests/unit/storage/test_storage_hazards.py"
_DECISIONS = "tests/unit/controller/decisions"
_LIVENESS = "tests/unit/controller/test_liveness.py"

_LEADER = "replication/tidelog/replication/leader.py"
_FOLLOWER = "replication/tidelog/replication/follower.py"
_PARTITION = "replication/tidelog/replication/partition.py"
_LOG = "storage/tidelog/storage/log.py"
_FLUSH = "storage/tidelog/storage/flush.py"
_ALTER = "controller/tidelog/controller/decisions/alter_partition.py"
_PLAN = "controller/tidelog/controller/decisions/partition_plan.py"
_REGISTRATION = "controller/tidelog/controller/decisions/registration.py"

MUTANTS = [
    Mutant(
        "truncate-to-own-high-watermark",
        "hazard 1",
        _FOLLOWER,
        "if log.last_epoch is None and log.end > log.high_watermark:",
        "if log.end > log.high_watermark:",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "the-first-batch-may-have-any-sequence",
        "what is acknowledged is kept: a retry behind it counts as written, for librdkafka",
        _LOG,
        "is_first=self.end_offset == 0",
        "is_first=False",
        ("tests/unit/storage/test_storage_hazards.py",),
    ),
    Mutant(
        "a-failure-is-forgotten-where-nothing-syncs",
        "hazard 44",
        "storage/tidelog/storage/log_dir.py",
        "                self._disk.open(marker, create=True).close()\n",
        "                pass\n",
        ("tests/unit/storage/test_log_dir.py",),
    ),
    Mutant(
        "a-slow-disk-hangs",
        "a replica that has much to sync keeps its disk",
        "storage/tidelog/storage/flusher.py",
        "left if flush.synced == synced else _STALL_SLICES",
        "left",
        ("tests/unit/storage/test_flusher.py",),
    ),
    Mutant(
        "a-term-never-seen-is-believed",
        "hazard 41, for the metadata",
        "controller/tidelog/controller/quorum/startup.py",
        "if state is not None and last.term > state.term:",
        "if False:",
        ("tests/unit/controller/quorum/test_startup.py",),
    ),
    Mutant(
        "cut-to-the-leaders-end-of-another-epoch",
        "hazard 2",
        _FOLLOWER,
        "            offset = min(ours.end_offset, log.end)\n        else:",
        "            offset = min(theirs.end_offset, log.end)\n        else:",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "leader-answers-any-epoch",
        "hazard 3",
        _LEADER,
        "        if fetch.leader_epoch < self.leader_epoch:\n"
        "            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "answer-of-another-epoch-counts",
        "hazard 3",
        _FOLLOWER,
        "        if fetched.leader_epoch != self.leader_epoch:\n"
        '            return Ignore("another leader epoch")\n',
        "",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "join-below-the-epochs-start",
        "hazard 4",
        _LEADER,
        "and remote.flushed_end >= max(self.high_watermark, self.epoch_start)",
        "and remote.flushed_end >= 0",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "pending-members-do-not-count",
        "hazard 5",
        _LEADER,
        "self._maximal_isr = frozenset((*self.state.isr, *isr))",
        "self._maximal_isr = frozenset(self.state.isr)",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "controller-ignores-the-members-broker-epoch",
        "hazard 6",
        _ALTER,
        "    if known.epoch != member.epoch:",
        "    if False:",
        (_DECISIONS, f"{_SCENARIOS}a_report_that_was_under_way_does_not_admit_a_wiped_follower"),
    ),
    Mutant(
        "former-life-of-a-follower-counts",
        "hazard 6",
        _LEADER,
        "        if fetch.broker_epoch < max(newest, self._cluster.epoch_of(fetch.follower)):",
        "        if False:",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "a-retry-refreshes-the-broker-epoch",
        "hazard 6",
        "replication/tidelog/replication/controller_calls.py",
        "        answer = await self._port.alter_partition(reports)\n",
        "        import dataclasses\n"
        "        reports = [\n"
        "            dataclasses.replace(\n"
        "                one,\n"
        "                isr=tuple(\n"
        "                    dataclasses.replace(\n"
        "                        member,\n"
        "                        epoch=self._partitions()[one.partition]"
        ".leader._cluster.epoch_of(member.broker),\n"
        "                    )\n"
        "                    for member in one.isr\n"
        "                ),\n"
        "            )\n"
        "            for one in reports\n"
        "        ]\n"
        "        answer = await self._port.alter_partition(reports)\n",
        ("tests/unit/replication/test_reports_sent_again.py",),
    ),
    Mutant(
        "high-watermark-moves-below-min-isr",
        "hazard 7",
        _LEADER,
        "        if self.is_under_min_isr:\n            return False\n        lowest",
        "        lowest",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "no-eligible-leader-replicas",
        "hazard 7",
        _PLAN,
        "    return tuple(sorted(candidates & {*plan.replicas}))",
        "    return ()",
        (_DECISIONS,),
    ),
    Mutant(
        "offsets-told-before-the-epoch-is-established",
        "hazard 8",
        _LEADER,
        "        return self.high_watermark >= self.epoch_start\n",
        "        return True\n",
        ("tests/unit/replication/test_cluster_reads.py",),
    ),
    Mutant(
        "log-of-a-topic-of-the-same-name-is-taken-over",
        "hazard 9",
        "replication/tidelog/replication/log_keeper.py",
        "        if found.topic_id != topic_id:",
        "        if False:",
        ("tests/unit/replication/test_cluster_logs.py",),
    ),
    Mutant(
        "late-answers-count",
        "hazard 10",
        _FOLLOWER,
        "        if correlation_id < self._asked_in:\n"
        '            return Ignore("answers an earlier request")\n',
        "",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "joining-waits-for-the-high-watermark",
        "hazard 11",
        _LEADER,
        "            and remote.is_following\n            and remote.flushed_end >= max",
        "            and remote.is_following\n            and self.is_established\n"
        "            and remote.flushed_end >= max",
        (_TRANSCRIPTS,),
    ),
    Mutant(
        "every-registration-is-a-new-one",
        "hazard 12",
        _REGISTRATION,
        "        if known is not None and known.incarnation_id == request.incarnation_id:",
        "        if False:",
        (_DECISIONS,),
    ),
    Mutant(
        "acknowledge-before-fsync",
        "hazard 13",
        _LOG,
        "        return self._flush.flushed_end\n\n    @property\n    def last_stable_offset",
        "        return self.end_offset\n\n    @property\n    def last_stable_offset",
        (f"{_SCENARIOS}power_loss_of_all_nodes_loses_nothing_acknowledged", _STORAGE),
    ),
    Mutant(
        "a-follower-takes-in-damaged-records",
        "hazard 14",
        _LOG,
        "                header = check_batch(view, position)\n            except IncompleteBatch:",
        "                from tidelog.wire.batch import check_structure\n"
        "                header = check_structure(view, position)\n"
        "            except IncompleteBatch:",
        ("tests/unit/replication/test_cluster_faults.py",),
    ),
    Mutant(
        "a-follower-takes-in-what-its-leader-cannot-have",
        "hazard 14",
        _LOG,
        "            bounds.check(self.tp, header)\n",
        "",
        ("tests/unit/replication/test_cluster_faults.py",),
    ),
    Mutant(
        "a-wrong-length-ends-the-segment",
        "hazard 14",
        "storage/tidelog/storage/segment.py",
        "        if end != size:\n",
        "        if end > size:\n",
        (_STORAGE, "transactions:1773"),
    ),
    Mutant(
        "admitted-on-the-unflushed-end",
        "hazard 38",
        "replication/tidelog/replication/remote_replica.py",
        "        self.flushed_end = min(fetch.flushed_end, fetch.fetch_offset)",
        "        self.flushed_end = fetch.fetch_offset",
        (f"{_SCENARIOS}power_loss_of_all_nodes_loses_nothing_acknowledged", _TRANSCRIPTS),
    ),
    Mutant(
        "a-duplicate-is-answered-at-once",
        "hazard 39",
        _PARTITION,
        "        if acks != ALL:\n            return _done(produced)\n",
        "        if acks != ALL or result.is_duplicate:\n            return _done(produced)\n",
        (_REPLICATION,),
    ),
    Mutant(
        "damage-found-by-recovery-is-not-reported",
        "hazard 41",
        "broker/tidelog/broker/broker_role.py",
        "    Verdict.SUSPECT: RecoveryVerdict.SUSPECT,\n",
        "",
        (f"{_DISKS}a_flipped_bit_that_recovery_finds_is_fetched_again",),
    ),
    Mutant(
        "suspects-lead-like-others",
        "hazard 41",
        _PLAN,
        "        return counts and broker not in suspects and plan.may_lead(broker)",
        "        return counts and plan.may_lead(broker)",
        (_DECISIONS,),
    ),
    Mutant(
        "late-ticks-fence",
        "hazard 42",
        "controller/tidelog/controller/liveness.py",
        "                self._forgive(now_ms, now_ms - due_ms)\n",
        "",
        (_LIVENESS,),
    ),
    Mutant(
        "expiry-is-judged-before-the-queues-are-drained",
        "hazard 42",
        "controller/tidelog/controller/liveness.py",
        "return self._judge(now_ms) if drained and self._is_active else []",
        "return self._judge(now_ms) if self._is_active else []",
        (_LIVENESS,),
    ),
    Mutant(
        "a-flush-forgets-the-directory",
        "hazard 43",
        _FLUSH,
        "            disk.sync_dir(self.directory)",
        "            pass",
        (_STORAGE,),
    ),
    Mutant(
        "flushed-up-to-the-end-after-the-fsync",
        "hazard 38",
        _FLUSH,
        "        self.flushed_end = max(self.flushed_end, flush.end)",
        "        self.flushed_end = Offset(1 << 60)",
        (_STORAGE,),
    ),
    Mutant(
        "a-failed-fsync-is-forgiven",
        "hazard 44",
        "storage/tidelog/storage/flusher.py",
        '        log.fail(f"flush failed: {error}")\n',
        "        return\n",
        (f"{_DISKS}a_failed_fsync_costs_the_node_its_place_until_it_has_fetched_again",),
    ),
    Mutant(
        "a-stop-is-taken-for-a-stalled-disk",
        "DESIGN 2.3",
        "storage/tidelog/storage/flusher.py",
        "            left = slices_left if is_late else slices_left - 1\n",
        "            left = 0 if is_late else slices_left - 1\n",
        (f"{_SCENARIOS}a_leader_that_is_stopped_and_goes_on_later",),
    ),
    Mutant(
        "a-held-fetch-that-diverges-is-not-answered",
        "liveness",
        "replication/tidelog/replication/fetch_service.py",
        "        self._verdicts.pop(ref, None)\n        entry.is_unsettled = False\n        match",
        "        self._verdicts.pop(ref, None)\n        match",
        (f"{_SCENARIOS}two_fast_elections_leave_one_history",),
    ),
    Mutant(
        "a-stale-report-of-the-isr-is-accepted",
        "controller",
        _ALTER,
        "    if version < state.partition_epoch:",
        "    if False:",
        (_DECISIONS,),
    ),
    Mutant(
        "a-former-leader-may-change-the-isr",
        "controller",
        _ALTER,
        "    if epoch < state.leader_epoch:",
        "    if False:",
        (_DECISIONS,),
    ),
    Mutant(
        "a-fenced-broker-may-join",
        "controller",
        _ALTER,
        "    if known.fenced:",
        "    if False:",
        (_DECISIONS,),
    ),
    Mutant(
        "a-lost-directory-keeps-its-place",
        "DESIGN 2.2",
        _REGISTRATION,
        "    elif directory not in request.log_dirs:\n        return True\n",
        "    elif directory not in request.log_dirs:\n        return False\n",
        (_DECISIONS, f"{_SCENARIOS}a_wiped_node_returns"),
    ),
    Mutant(
        "a-suspicion-is-forgotten-before-it-is-told",
        "hazards 41 and 44",
        "storage/tidelog/storage/log_dir.py",
        "        self._keep_suspicion(report)\n",
        "",
        ("tests/unit/storage/test_log_dir.py", "cluster:631490"),
    ),
    Mutant(
        "replicas-act-on-metadata-of-a-former-life",
        "DESIGN 2.2",
        "broker/tidelog/broker/broker_role.py",
        "if self._are_logs_open and epoch is not None and image.offset >= epoch:",
        "if self._are_logs_open:",
        ("cluster:1", "cluster:2", "cluster:3", "cluster:4"),
    ),
    Mutant(
        "the-window-of-producers-is-not-refilled",
        "hazard 24",
        "replication/tidelog/replication/log_keeper.py",
        "        if len(log.producers.states) > 0:",
        "        if False:",
        (f"{_SCENARIOS}a_retry_is_recognised_after_all_nodes_were_stopped_and_started",),
    ),
]


if __name__ == "__main__":
    sys.exit(run_all(MUTANTS, sys.argv[1:]))
