"""Doing a planned fault to a target, and undoing it.

``apply`` returns when the fault acts; ``AppliedFault.heal`` undoes it and may be called twice. A
fault that fails halfway undoes what it did before it says so. Whom it hits is found when it acts,
by asking the cluster; everything else stands in the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from tidelog.chaos.faults.administration import administer
from tidelog.chaos.faults.corruption import corrupt_file
from tidelog.chaos.faults.schedule import PlannedFault
from tidelog.chaos.faults.table import CORRUPTIBLE, FAULTS, VICTIMS
from tidelog.chaos.faults.view import ClusterView
from tidelog.chaos.targets.base import SOUND, Rigging, Target, TargetError

T = TypeVar("T")

_BACK_IN_SYNC_S: Final = 60.0
_POLL_S: Final = 0.1
_DIRTY_MS: Final = 100.0
_DIRTY_S: Final = 0.3
"""A disk that syncs at once has nothing to lose, so power goes while syncs are slow."""


class FaultImpossible(Exception):
    """There is nobody to hit at this moment; the text says whom it looked for."""


@dataclass(slots=True)
class AppliedFault:
    """A fault that acts; also a context manager that heals it."""

    name: str
    detail: str
    """For a person: ``node 2 (leader of events-0)``."""
    nodes: tuple[int, ...]
    _undo: ExitStack = field(default_factory=ExitStack)

    def heal(self) -> None:
        self._undo.close()

    def __enter__(self) -> AppliedFault:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


@dataclass(slots=True)
class _Scene:
    planned: PlannedFault
    target: Target
    view: ClusterView
    undo: ExitStack

    @property
    def node(self) -> int:
        return int(self.planned.parameters["node"])

    @property
    def others(self) -> list[int]:
        return [node for node in self.target.nodes if node != self.node]


_Hit = tuple[str, tuple[int, ...]]
"""What was done, in words, and to whom."""


def apply(planned: PlannedFault, target: Target, view: ClusterView) -> AppliedFault:
    """Raises ``FaultImpossible`` where there is nobody to hit, ``TargetError`` where it failed."""
    with ExitStack() as undo:
        scene = _Scene(planned, target, view, undo)
        detail, nodes = _ACTIONS[planned.name](scene)
        return AppliedFault(planned.name, detail, nodes, undo.pop_all())
    raise AssertionError("an exit stack without callbacks swallows no exception")


# --- whom it hits ----------------------------------------------------------------------


def _victims(scene: _Scene, kind: str) -> _Hit:
    draw, view = scene.planned.draw, scene.view
    match kind:
        case "random":
            return f"node {scene.node}", (scene.node,)
        case "all":
            return "all nodes", tuple(scene.target.nodes)
        case "controller":
            controller = view.controller()
            if controller is None:
                raise FaultImpossible("no node says who the active controller is")
            return f"node {controller} (active controller)", (controller,)
        case "coordinator":
            if not view.groups():
                raise FaultImpossible("the workload has no consumer group")
            group = _pick(view.groups(), draw)
            coordinator = view.coordinator(group)
            if coordinator is None:
                raise FaultImpossible(f"no node says who coordinates {group}")
            return f"node {coordinator} (coordinator of {group})", (coordinator,)
        case _:
            return _replica(view, draw, is_leader=kind == "leader")


def _replica(view: ClusterView, draw: int, *, is_leader: bool) -> _Hit:
    led = [state for state in view.partitions() if state.leader is not None]
    if not is_leader:
        led = [state for state in led if set(state.isr) - {state.leader}]
    if not led:
        role = "leader" if is_leader else "follower in sync"
        raise FaultImpossible(f"no partition of the workload has a {role}")
    state = _pick(led, draw)
    followers = sorted(set(state.isr) - {state.leader})
    node = state.leader if is_leader else _pick(followers, draw // len(led))
    assert node is not None
    role = "leader" if is_leader else "follower"
    return f"node {node} ({role} of {state.topic}-{state.partition})", (node,)


def _pick(choices: Sequence[T], draw: int) -> T:
    return choices[draw % len(choices)]


# --- processes -------------------------------------------------------------------------


def _on_process(verb: str, kind: str) -> Callable[[_Scene], _Hit]:
    def act(scene: _Scene) -> _Hit:
        detail, nodes = _victims(scene, kind)
        target = scene.target
        stop: Callable[[int], None] = getattr(target, verb)
        go_on = target.resume if verb == "pause" else target.start_node
        for node in nodes:
            scene.undo.callback(go_on, node)
            stop(node)
        return detail, nodes

    return act


def _restart(scene: _Scene) -> _Hit:
    scene.undo.callback(scene.target.start_node, scene.node)
    scene.target.terminate(scene.node)
    scene.undo.close()
    return f"node {scene.node}", (scene.node,)


def _rolling_restart(scene: _Scene) -> _Hit:
    watched = len(scene.view.partitions())
    for node in scene.target.nodes:
        with ExitStack() as undo:
            undo.callback(scene.target.start_node, node)
            scene.target.terminate(node)
        _wait_until_in_sync(scene.view, node, watched)
    return "all nodes in turn", tuple(scene.target.nodes)


def _wait_until_in_sync(view: ClusterView, node: int, watched: int) -> None:
    deadline = time.monotonic() + _BACK_IN_SYNC_S
    while True:
        states = view.partitions()
        whole = [state for state in states if set(state.isr) == set(state.replicas)]
        if len(whole) == len(states) >= watched:
            return
        if time.monotonic() > deadline:
            raise TargetError(f"node {node} is not in sync {_BACK_IN_SYNC_S:g} s after its start")
        time.sleep(_POLL_S)


# --- network ---------------------------------------------------------------------------


def _cut_pairs(scene: _Scene, pairs: Sequence[tuple[int, int]]) -> None:
    for source, target in pairs:
        scene.undo.callback(scene.target.mend, source, target)
        scene.target.cut(source, target)


def _both_ways(node: int, others: Sequence[int]) -> list[tuple[int, int]]:
    return [pair for other in others for pair in ((node, other), (other, node))]


def _cut(scene: _Scene) -> _Hit:
    _cut_pairs(scene, _both_ways(scene.node, scene.others))
    return f"node {scene.node} from all others", (scene.node,)


def _cut_leader(scene: _Scene) -> _Hit:
    detail, (leader,) = _victims(scene, "leader")
    _cut_pairs(scene, _both_ways(leader, [n for n in scene.target.nodes if n != leader]))
    return f"{detail} from all others", (leader,)


def _cut_one_way(scene: _Scene) -> _Hit:
    _cut_pairs(scene, [(scene.node, other) for other in scene.others])
    return f"node {scene.node} is not heard by the others", (scene.node,)


def _cut_from_controllers(scene: _Scene) -> _Hit:
    """Of combined nodes all are controllers; what tells a node apart is the active one."""
    controller = scene.view.controller()
    led = {state.leader for state in scene.view.partitions()} - {None, controller}
    if controller is None or not led:
        raise FaultImpossible("there is no leader besides the active controller")
    leader = _pick(sorted(node for node in led if node is not None), scene.planned.draw)
    _cut_pairs(scene, _both_ways(leader, [controller]))
    return f"node {leader} (a leader) from node {controller} (active controller)", (leader,)


def ring_cuts(nodes: Sequence[int]) -> list[tuple[int, int]]:
    """The ordered pairs that a ring leaves without a link."""
    count = len(nodes)
    is_one_way = count == 3  # any two of three are neighbours
    near = (1,) if is_one_way else (1, count - 1)
    return [
        (nodes[i], nodes[(i + step) % count])
        for i in range(count)
        for step in range(1, count)
        if step not in near
    ]


def _ring(scene: _Scene) -> _Hit:
    _cut_pairs(scene, ring_cuts(scene.target.nodes))
    return "each node reaches its neighbours only", tuple(scene.target.nodes)


def _slow(scene: _Scene) -> _Hit:
    delay_ms = scene.planned.parameters.get("delay_ms", 0.0)
    bytes_per_s = scene.planned.parameters.get("bytes_per_s", 0.0)
    for other in scene.others:
        scene.undo.callback(scene.target.slow_link, scene.node, other, 0.0, 0.0)
        scene.target.slow_link(scene.node, other, delay_ms, bytes_per_s)
    how = f"{delay_ms:g} ms late" if delay_ms else f"at {bytes_per_s / 1024:g} KiB/s"
    return f"what node {scene.node} sends arrives {how}", (scene.node,)


def _reset(scene: _Scene) -> _Hit:
    for other in scene.others:
        scene.target.reset_link(scene.node, other)
    return f"connections from node {scene.node}", (scene.node,)


def _loss(scene: _Scene) -> _Hit:
    share = scene.planned.parameters["share"]
    for other in scene.others:
        scene.undo.callback(scene.target.lose, scene.node, other, 0.0)
        scene.target.lose(scene.node, other, share)
    return f"{share:.1%} of what node {scene.node} sends", (scene.node,)


# --- disk and calendar -----------------------------------------------------------------


def _spoil_disk(rigging: Rigging, words: str) -> Callable[[_Scene], _Hit]:
    def act(scene: _Scene) -> _Hit:
        """A directory that failed stays offline until the node's next start (DESIGN 2.1)."""
        node = scene.node
        scene.undo.callback(_start_anew, scene.target, node)
        scene.undo.callback(scene.target.rig, node, SOUND)
        scene.target.rig(node, rigging)
        return f"the disk of node {node} {words}", (node,)

    return act


def _start_anew(target: Target, node: int) -> None:
    if target.is_running(node):
        target.terminate(node)
    target.start_node(node)


def _slow_disk(scene: _Scene) -> _Hit:
    sync_ms = scene.planned.parameters["sync_ms"]
    scene.undo.callback(scene.target.rig, scene.node, SOUND)
    scene.target.rig(scene.node, Rigging(sync_ms=sync_ms))
    return f"syncs of node {scene.node} take {sync_ms:g} ms longer", (scene.node,)


def _skew(scene: _Scene) -> _Hit:
    skew_s = scene.planned.parameters["skew_s"]
    scene.undo.callback(scene.target.rig, scene.node, SOUND)
    scene.target.rig(scene.node, Rigging(skew_s=skew_s))
    return f"the calendar of node {scene.node} is {skew_s:+g} s off", (scene.node,)


def _lose_power(scene: _Scene) -> _Hit:
    """Together: a node that goes first must not be told of by those that go next."""
    is_all = scene.planned.name == "power-loss-all"
    nodes = tuple(scene.target.nodes) if is_all else (scene.node,)
    for node in nodes:
        scene.undo.callback(scene.target.start_node, node)
        scene.undo.callback(scene.target.rig, node, SOUND)
        scene.target.rig(node, Rigging(sync_ms=_DIRTY_MS))
    time.sleep(_DIRTY_S)
    for node in nodes:
        scene.target.kill(node)
    lost = [f"node {node}: {scene.target.lose_unsynced(node)}" for node in nodes]
    return "; ".join(lost), nodes


def _corrupt(kind: str) -> Callable[[_Scene], _Hit]:
    def act(scene: _Scene) -> _Hit:
        node = scene.node
        scene.undo.callback(scene.target.start_node, node)
        # Snapshots are written, and believed, at a clean end; all else must survive any.
        stop = scene.target.terminate if kind == "snapshot" else scene.target.kill
        stop(node)
        harmed = corrupt_file(
            scene.target.log_dirs(node),
            kind,
            scene.planned.draw,
            int(scene.planned.parameters["bytes"]),
        )
        if harmed is None:
            raise FaultImpossible(f"node {node} has no {kind} of a partition yet")
        return f"node {node}: {harmed}", (node,)

    return act


def _administer(scene: _Scene) -> _Hit:
    return administer(scene.target.bootstrap, scene.planned, scene.undo), ()


_ACTIONS: Final[Mapping[str, Callable[[_Scene], _Hit]]] = MappingProxyType({
    **{
        f"{verb}-{kind}": _on_process(verb, kind)
        for verb in ("kill", "terminate", "pause")
        for kind in VICTIMS
    },
    **{f"corrupt-{kind}": _corrupt(kind) for kind in CORRUPTIBLE},
    "restart": _restart,
    "rolling-restart": _rolling_restart,
    "cut": _cut,
    "cut-leader": _cut_leader,
    "cut-one-way": _cut_one_way,
    "cut-from-controllers": _cut_from_controllers,
    "ring": _ring,
    "delay": _slow,
    "bandwidth": _slow,
    "reset": _reset,
    "loss": _loss,
    "disk-full": _spoil_disk(Rigging(is_disk_full=True), "is full"),
    "disk-slow": _slow_disk,
    "read-only": _spoil_disk(Rigging(is_read_only=True), "takes no writes"),
    "clock-skew": _skew,
    "administration": _administer,
    "power-loss": _lose_power,
    "power-loss-all": _lose_power,
})  # fmt: skip

assert _ACTIONS.keys() == FAULTS.keys(), "every fault of the table can be done, and no other"
