"""What each fault does to a target, on a target that only writes it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tidelog.chaos.faults import FAULTS, FaultImpossible, PlannedFault, apply, applying
from tidelog.chaos.faults.corruption import candidates, corrupt_file
from tidelog.chaos.faults.schedule import draw_one
from tidelog.chaos.faults.view import most_believed
from tidelog.chaos.history import PartitionState
from tidelog.chaos.targets.base import SOUND, Rigging, Target, TargetError
from tidelog.testing.probe import PartitionAnswer as Answer


class WrittenDown:
    """A target of three nodes that does nothing but note it."""

    name = "local"
    bootstrap = "127.0.0.1:9092"

    def __init__(self, home: Path | None = None, fails_at: str = "") -> None:
        self.calls: list[str] = []
        self.nodes: Sequence[int] = (1, 2, 3)
        self._home = home
        self._fails_at = fails_at
        self._stopped: set[int] = set()

    def _note(self, *words: object) -> None:
        call = " ".join(map(str, words))
        if call == self._fails_at:
            raise TargetError(f"{call} failed")
        self.calls.append(call)

    def start(self) -> None:
        self._note("start")

    def stop(self) -> None:
        self._note("stop")

    def cannot(self, fault: str) -> str | None:
        return None

    def environment(self) -> Mapping[str, str]:
        return {}

    def log_dirs(self, node: int) -> Sequence[Path]:
        return [self._home] if self._home is not None else []

    def is_running(self, node: int) -> bool:
        return node not in self._stopped

    def kill(self, node: int) -> None:
        self._stopped.add(node)
        self._note("kill", node)

    def terminate(self, node: int) -> None:
        self._stopped.add(node)
        self._note("terminate", node)

    def start_node(self, node: int) -> None:
        self._stopped.discard(node)
        self._note("start", node)

    def pause(self, node: int) -> None:
        self._note("pause", node)

    def resume(self, node: int) -> None:
        self._note("resume", node)

    def cut(self, source: int, target: int) -> None:
        self._note("cut", source, target)

    def mend(self, source: int, target: int) -> None:
        self._note("mend", source, target)

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._note("slow", source, target, f"{delay_ms:g}", f"{bytes_per_s:g}")

    def reset_link(self, source: int, target: int) -> None:
        self._note("reset", source, target)

    def lose(self, source: int, target: int, share: float) -> None:
        self._note("lose", source, target, f"{share:g}")

    def rig(self, node: int, rigging: Rigging) -> None:
        words = "sound" if rigging == SOUND else str(rigging).removeprefix("Rigging")
        self._note("rig", node, words)

    def lose_unsynced(self, node: int) -> str:
        self._note("lose unsynced", node)
        return "7 bytes"

    def heal_all(self) -> None:
        self._note("heal")


class Told:
    """A view that says what the test says."""

    def __init__(
        self,
        leaders: Sequence[int | None] = (2,),
        isr: tuple[int, ...] = (1, 2, 3),
        controller: int | None = 1,
        groups: Sequence[str] = ("g",),
    ) -> None:
        self._states = [
            PartitionState("t", number, leader, 1, (1, 2, 3), isr)
            for number, leader in enumerate(leaders)
        ]
        self._controller = controller
        self._groups = groups

    def partitions(self) -> Sequence[PartitionState]:
        return self._states

    def groups(self) -> Sequence[str]:
        return self._groups

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self._states[partition].leader

    def isr(self, topic: str, partition: int) -> Sequence[int]:
        return self._states[partition].isr

    def controller(self) -> int | None:
        return self._controller

    def coordinator(self, group: str) -> int | None:
        return 3


def planned(name: str, draw: int = 0, **parameters: float) -> PlannedFault:
    return PlannedFault(1, 0.0, name, 1.0, draw, {"node": 3, **parameters})


FULL = "(is_disk_full=True, is_read_only=False, sync_ms=0.0, skew_s=0.0)"
DIRTY = "(is_disk_full=False, is_read_only=False, sync_ms=100.0, skew_s=0.0)"
SLOW = "(is_disk_full=False, is_read_only=False, sync_ms=70.0, skew_s=0.0)"
SKEWED = "(is_disk_full=False, is_read_only=False, sync_ms=0.0, skew_s=-60.0)"

DONE = [
    (planned("kill-leader"), "node 2 (leader of t-0)", "kill 2 | start 2"),
    (planned("terminate-controller"), "node 1 (active controller)", "terminate 1 | start 1"),
    (planned("pause-follower", 1), "node 3 (follower of t-0)", "pause 3 | resume 3"),
    (planned("pause-coordinator"), "node 3 (coordinator of g)", "pause 3 | resume 3"),
    (
        planned("kill-all"),
        "all nodes",
        "kill 1; kill 2; kill 3 | start 3; start 2; start 1",
    ),
    (planned("restart"), "node 3", "terminate 3; start 3 | "),
    (
        planned("rolling-restart"),
        "all nodes in turn",
        "terminate 1; start 1; terminate 2; start 2; terminate 3; start 3 | ",
    ),
    (
        planned("cut"),
        "node 3 from all others",
        "cut 3 1; cut 1 3; cut 3 2; cut 2 3 | mend 2 3; mend 3 2; mend 1 3; mend 3 1",
    ),
    (
        planned("cut-leader"),
        "node 2 (leader of t-0) from all others",
        "cut 2 1; cut 1 2; cut 2 3; cut 3 2 | mend 3 2; mend 2 3; mend 1 2; mend 2 1",
    ),
    (
        planned("cut-one-way"),
        "node 3 is not heard by the others",
        "cut 3 1; cut 3 2 | mend 3 2; mend 3 1",
    ),
    (
        planned("cut-from-controllers"),
        "node 2 (a leader) from node 1 (active controller)",
        "cut 2 1; cut 1 2 | mend 1 2; mend 2 1",
    ),
    (
        planned("ring"),
        "each node reaches its neighbours only",
        "cut 1 3; cut 2 1; cut 3 2 | mend 3 2; mend 2 1; mend 1 3",
    ),
    (
        planned("delay", delay_ms=50),
        "what node 3 sends arrives 50 ms late",
        "slow 3 1 50 0; slow 3 2 50 0 | slow 3 2 0 0; slow 3 1 0 0",
    ),
    (
        planned("bandwidth", bytes_per_s=2048),
        "what node 3 sends arrives at 2 KiB/s",
        "slow 3 1 0 2048; slow 3 2 0 2048 | slow 3 2 0 0; slow 3 1 0 0",
    ),
    (planned("reset"), "connections from node 3", "reset 3 1; reset 3 2 | "),
    (
        planned("loss", share=0.05),
        "5.0% of what node 3 sends",
        "lose 3 1 0.05; lose 3 2 0.05 | lose 3 2 0; lose 3 1 0",
    ),
    (
        planned("disk-full"),
        "the disk of node 3 is full",
        f"rig 3 {FULL} | rig 3 sound; terminate 3; start 3",
    ),
    (
        planned("disk-slow", sync_ms=70.0),
        "syncs of node 3 take 70 ms longer",
        f"rig 3 {SLOW} | rig 3 sound",
    ),
    (
        planned("clock-skew", skew_s=-60.0),
        "the calendar of node 3 is -60 s off",
        f"rig 3 {SKEWED} | rig 3 sound",
    ),
    (
        planned("power-loss"),
        "node 3: 7 bytes",
        f"rig 3 {DIRTY}; kill 3; lose unsynced 3 | rig 3 sound; start 3",
    ),
    (
        planned("power-loss-all"),
        "node 1: 7 bytes; node 2: 7 bytes; node 3: 7 bytes",
        f"rig 1 {DIRTY}; rig 2 {DIRTY}; rig 3 {DIRTY}; kill 1; kill 2; kill 3; "
        "lose unsynced 1; lose unsynced 2; lose unsynced 3"
        " | rig 3 sound; start 3; rig 2 sound; start 2; rig 1 sound; start 1",
    ),
]


@pytest.mark.parametrize(("fault", "detail", "calls"), DONE, ids=[f.name for f, _, _ in DONE])
def test_what_a_fault_does_and_how_it_heals(
    fault: PlannedFault, detail: str, calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_DIRTY_S", 0.0)
    target = WrittenDown()
    acted, healed = ([call for call in part.split("; ") if call] for part in calls.split(" | "))

    applied = apply(fault, target, Told())
    assert applied.detail == detail
    assert target.calls == acted
    applied.heal()
    applied.heal()
    assert target.calls == acted + healed, "healing twice heals once"


def test_a_written_target_is_a_target() -> None:
    target: Target = WrittenDown()
    assert target.nodes == (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "view", "reason"),
    [
        ("kill-leader", Told(leaders=(None,)), "no partition of the workload has a leader"),
        ("pause-follower", Told(isr=(2,)), "has a follower in sync"),
        ("kill-controller", Told(controller=None), "who the active controller is"),
        ("kill-coordinator", Told(groups=()), "has no consumer group"),
        ("cut-from-controllers", Told(leaders=(1,)), "no leader besides the active controller"),
        ("corrupt-index", Told(), "node 3 has no index of a partition yet"),
    ],
)
def test_a_fault_that_finds_nobody_says_so_and_leaves_all_as_it_was(
    name: str, view: Told, reason: str
) -> None:
    target = WrittenDown()

    with pytest.raises(FaultImpossible, match=reason):
        apply(planned(name, bytes=1), target, view)
    assert target.calls in ([], ["kill 3", "start 3"])


def test_a_fault_that_fails_halfway_undoes_what_it_did() -> None:
    target = WrittenDown(fails_at="cut 3 2")

    with pytest.raises(TargetError, match="cut 3 2 failed"):
        apply(planned("cut"), target, Told())
    assert target.calls == ["cut 3 1", "cut 1 3", "mend 3 2", "mend 1 3", "mend 3 1"]


@pytest.mark.parametrize("name", [n for n in FAULTS if n != "administration"])
def test_every_fault_of_the_table_can_be_drawn_and_done(name: str, tmp_path: Path) -> None:
    for place in ("a.log", "a.index", "a.timeindex", "a.snapshot", "leader-epoch-checkpoint"):
        (tmp_path / "t-0").mkdir(exist_ok=True)
        (tmp_path / "t-0" / place).write_bytes(b"content")
    target = WrittenDown(tmp_path)

    with apply(draw_one(5, name, target.nodes), target, Told()) as applied:
        assert applied.detail
        assert target.calls
    assert all(target.is_running(node) for node in target.nodes)


# --- whom to believe -------------------------------------------------------------------


def said(epoch: int, leader: int, isr: tuple[int, ...], *, is_own_word: bool = False) -> Answer:
    return Answer("t", 0, leader, epoch, (1, 2, 3), isr, is_own_word)


@pytest.mark.parametrize(
    ("answers", "leader", "isr"),
    [
        ([said(4, 1, (1, 2, 3), is_own_word=True), said(5, 2, (2, 3))], 2, (2, 3)),
        ([said(5, 2, (1, 2, 3)), said(5, 2, (2, 3)), said(5, 2, (3, 2))], 2, (2, 3)),
        ([said(5, 2, (1, 2, 3)), said(5, 2, (2, 3), is_own_word=True)], 2, (2, 3)),
    ],
    ids=["a later epoch", "the most", "the leader"],
)
def test_nodes_that_were_cut_off_are_not_believed(
    answers: list[Answer], leader: int, isr: tuple[int, ...]
) -> None:
    for order in (answers, answers[::-1]):
        state = most_believed(order)
        assert (state.leader, state.isr) == (leader, isr)


# --- corruption ------------------------------------------------------------------------


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    for partition in ("t-0", "__cluster_metadata-0", "t-1.0123-delete"):
        (tmp_path / partition).mkdir()
        (tmp_path / partition / "0.log").write_bytes(b"x" * 2000)
        (tmp_path / partition / "0.index").write_bytes(b"")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("log-tail", ["t-0/0.log"]),
        ("index", []),
        ("checkpoint", ["recovery-point-offset-checkpoint"]),
    ],
)
def test_only_files_that_may_be_harmed_are_found(
    log_dir: Path, kind: str, found: Sequence[str]
) -> None:
    assert [str(path.relative_to(log_dir)) for path in candidates([log_dir], kind)] == found


def test_bytes_are_flipped_near_the_end_of_a_log(log_dir: Path) -> None:
    words = corrupt_file([log_dir], "log-tail", 9, 4)

    changed = [i for i, byte in enumerate((log_dir / "t-0" / "0.log").read_bytes()) if byte != 120]
    assert len(changed) == 4
    assert changed[0] >= 2000 - 512
    assert words == f"4 bytes of t-0/0.log from {changed[0]} on"


def test_the_same_draw_harms_the_same(log_dir: Path) -> None:
    log = log_dir / "t-0" / "0.log"
    contents = set()
    for _ in range(2):
        log.write_bytes(b"x" * 2000)
        corrupt_file([log_dir], "log-tail", 4, 8)
        contents.add(log.read_bytes())
    assert len(contents) == 1


def test_the_unfilled_part_of_an_index_is_left_alone(log_dir: Path) -> None:
    index = log_dir / "t-0" / "0.index"
    index.write_bytes(b"entries!" + bytes(5000))

    corrupt_file([log_dir], "index", 4, 3)
    assert index.read_bytes()[8:] == bytes(5000)
    assert index.read_bytes()[:8] != b"entries!"
