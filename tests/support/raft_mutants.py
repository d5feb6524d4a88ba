"""Guards of the Raft machine, each removed on purpose; some script or seed must notice.

    python tests/support/raft_mutants.py [name ...]

copies the controller package aside, takes one guard out, runs the transcripts and then seeds of
the network against the copy, prints which of the two noticed first, and fails if a mutant lives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "controller" / "tidelog"
MAX_SEEDS = 400


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    module: str
    guard: str
    without: str


MUTANTS = [
    Mutant(
        "vote-twice",
        "election",
        "core.state.voted_for in (None, envelope.source) and core.leader_id is None",
        "core.leader_id is None",
    ),
    Mutant(
        "wiped-voter-votes",
        "election",
        "return not core.log.is_empty or core.state.founding is not None",
        "return True",
    ),
    Mutant(
        "found-without-all-reports",
        "founding",
        "if any(node_id not in learner.reports for node_id in others):",
        "if len(learner.reports) + 1 < len(configured) // 2 + 1:",
    ),
    Mutant(
        "found-on-a-report-of-a-log",
        "founding",
        "    if not back.is_log_empty:\n        learner.reports.pop(node_id, None)\n    elif",
        "    if",
    ),
    Mutant(
        "stand-before-founders-are-ready",
        "core",
        "not self.log.is_empty or self.state.is_founding_confirmed",
        "True",
    ),
    Mutant(
        "spent-vote-is-given-again",
        "founding",
        "state = replace(state, term=reported, voted_for=core.key)",
        "pass",
    ),
    Mutant("stale-log-wins", "election", ">= (core.log.last_term, core.log.end)", ">= (0, 0)"),
    Mutant(
        "longer-log-wins-over-later-term",
        "election",
        "(request.last_term, request.end_offset) >= (core.log.last_term, core.log.end)",
        "(request.end_offset, request.last_term) >= (core.log.end, core.log.last_term)",
    ),
    Mutant(
        "no-pre-vote",
        "election",
        "    if core.voters.are_majority([core.key]):",
        "    if True:",
    ),
    Mutant(
        "no-lease",
        "election",
        "core.following is not None and core.now_ms < core.following.lease_until_ms",
        "False",
    ),
    Mutant(
        "reset-keeps-lease",
        "election",
        "    following.lease_until_ms = core.now_ms\n",
        "",
    ),
    Mutant("late-tick-counts", "stall_clock", "self._now_ms - self._lost_ms", "self._now_ms"),
    Mutant(
        "vote-not-on-disk",
        "core",
        "    def send_when_state_durable(self, target: ReplicaKey, body: Body) -> None:\n"
        '        """For messages that speak of the term or the vote."""\n'
        "        self._send_after(self.disk.state_write,",
        "    def send_when_state_durable(self, target: ReplicaKey, body: Body) -> None:\n"
        '        """For messages that speak of the term or the vote."""\n'
        "        self._send_after(0,",
    ),
    Mutant(
        "follower-skips-fsync",
        "follower",
        "    return min(following.verified_end, core.disk.durable_end)",
        "    return following.verified_end",
    ),
    Mutant(
        "leader-skips-fsync",
        "replication",
        "core.disk.durable_end if voter == core.key",
        "core.log.end if voter == core.key",
    ),
    Mutant(
        "old-confirmation-counts",
        "disk_queue",
        "        self._log_ends = deque((write, min(old, end)) for write, old in self._log_ends)\n",
        "",
    ),
    Mutant(
        "acknowledge-unverified",
        "follower",
        "    return min(following.verified_end, core.disk.durable_end)",
        "    return core.disk.durable_end",
    ),
    Mutant(
        "commit-old-term",
        "replication",
        "end <= core.commit or core.log.term_before(end) != core.term",
        "end <= core.commit",
    ),
    Mutant(
        "minority-commits",
        "replication",
        "ends[len(voters) - voters.majority]",
        "ends[-1]",
    ),
    Mutant(
        "append-without-match",
        "follower",
        "if core.log.term_before(prev_end) != prev_term or not core.log.is_boundary(prev_end):",
        "if core.log.term_before(prev_end) is None:",
    ),
    Mutant(
        "cut-on-every-append",
        "follower",
        "        if mine.term != entry.term:",
        "        if True:",
    ),
    Mutant(
        "truncate-below-commit",
        "core",
        "            if truncate_to < self.commit:",
        "            if truncate_to < 0:",
    ),
    Mutant(
        "forget-snapshot-term",
        "log_view",
        "self._start_term = snapshot.term if snapshot else NO_TERM",
        "self._start_term = NO_TERM",
    ),
    Mutant(
        "snapshot-counts-before-disk",
        "snapshots",
        "            _install(core, following, incoming)\n            core.send_when_all_durable",
        "            _install(core, following, incoming)\n            core.send",
    ),
    Mutant(
        "snapshot-forgets-voters",
        "log_view",
        "        voters = self.voters_at(snapshot.end_offset)\n",
        "        voters = self._start_voters\n",
    ),
    Mutant(
        "resume-snapshot-of-another-leader",
        "snapshots",
        "if chunk.position == incoming.position:",
        "if chunk.position >= incoming.position:",
    ),
    Mutant(
        "no-check-quorum",
        "leader",
        "    if not _has_quorum(core, leader):",
        "    if False:",
    ),
    Mutant(
        "two-changes-at-once",
        "membership",
        "    if leader.change is not None or core.log.voters_end > core.commit:",
        "    if False:",
    ),
    Mutant(
        "change-before-own-term-commits",
        "membership",
        "    if not leader.is_established:",
        "    if False:",
    ),
    Mutant(
        "admit-without-catching-up",
        "membership",
        "leader.progress[change.voter].match_end >= change.target_end",
        "True",
    ),
    Mutant(
        "removed-leader-counts-itself",
        "election",
        "core.term == term and core.is_voter",
        "core.term == term",
    ),
    Mutant(
        "removed-follower-gives-up-at-once",
        "core",
        "case Follower(following=following) if not self.has_voting_right:",
        "case Follower(following=following) if not self.is_voter:",
    ),
    Mutant(
        "ex-leader-stays-leader",
        "leader",
        'core.become(Learner(None, core.now_ms), "removed from the voters")',
        "pass",
    ),
    Mutant(
        "node-id-is-the-voter",
        "validation",
        "if envelope.target_directory not in (None, identity.key.directory_id):",
        "if False:",
    ),
]


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    alive = [mutant.name for mutant in chosen if not judge(mutant)]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants noticed; alive: {alive or 'none'}")
    return 1 if alive else 0


def judge(mutant: Mutant) -> bool:
    """True if something notices."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tidelog"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / "controller" / "raft" / f"{mutant.module}.py"
        source = module.read_text(encoding="utf-8")
        if source.count(mutant.guard) != 1:
            raise SystemExit(f"{mutant.name}: the guard is not found once in {mutant.module}.py")
        module.write_text(source.replace(mutant.guard, mutant.without), encoding="utf-8")
        by_script, by_seed = _failing_scripts(folder), _failing_seed(folder)
    verdict = f"{by_script or 'no script'}; {by_seed or f'no seed of {MAX_SEEDS}'}"
    print(f"{mutant.name}: {verdict}", flush=True)
    return bool(by_script or by_seed)


def _failing_scripts(folder: str) -> str:
    tests = sorted(str(path) for path in (ROOT / "tests/unit/controller/raft").glob("test_*.py"))
    tests = [path for path in tests if "test_network" not in path]
    run = _python(folder, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *tests)
    failed = [line.split("::")[-1] for line in run.splitlines() if line.startswith("FAILED")]
    names = [line.split(" - ")[0].removeprefix("test_effects_are_as_written") for line in failed]
    return "scripts " + " ".join(names) if names else ""


def _failing_seed(folder: str) -> str:
    return _python(folder, __file__, "--seeds").strip()


def _python(folder: str, *arguments: str) -> str:
    paths = os.pathsep.join([folder, str(ROOT / "tests" / "support")])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return run.stdout


def first_failing_seed() -> str:
    from raft_network import run_seed

    for seed in range(MAX_SEEDS):
        try:
            run_seed(seed)
        except Exception as failure:  # any failure of a mutant counts
            return f"seed {seed} ({type(failure).__name__}: {str(failure)[:70]})"
    return ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--seeds"]:
        print(first_failing_seed())
    else:
        sys.exit(main(sys.argv[1:]))
