"""Filters and queues of the kernel in a node's network namespace: cuts, loss, resets, slow links.

What must not arrive is dropped where it would arrive, in the chain INPUT of the receiving node, so
that every cut is one way by nature. What must arrive late or slowly is queued where it leaves. The
state that is wanted is kept here and put in force as a whole, so that a namespace that is new
(a container that was started again) can be brought to it by ``restore``.

Bandwidth is ``htb``, which kernels have; delay is ``netem``, which many lack: ``has_netem``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from tidelog.chaos.targets.base import TargetError
from tidelog.chaos.targets.commands import run, succeeds

_DEVICE: Final = "eth0"
_UNLIMITED: Final = "10gbit"
_RESET_S: Final = 0.3
_MIN_BURST_BYTES: Final = 16 * 1024

NO_NETEM: Final = (
    "delay needs the kernel's netem (sch_netem), which this machine lacks; "
    "--target local delays in user space"
)


class NodePackets:
    """What one node is sent and sends; ``within`` runs a command in its namespace."""

    def __init__(self, within: Callable[[], Sequence[str]], addresses: Mapping[int, str]) -> None:
        self._within = within
        self._addresses = addresses
        self._cut: set[int] = set()
        self._lost: dict[int, float] = {}
        self._slow: dict[int, tuple[float, float]] = {}

    # --- what it is sent ---------------------------------------------------------------

    def cut_from(self, source: int) -> None:
        self._cut.add(source)
        self._filter()

    def mend_from(self, source: int) -> None:
        self._cut.discard(source)
        self._filter()

    def lose_from(self, source: int, share: float) -> None:
        if share > 0.0:
            self._lost[source] = share
        else:
            self._lost.pop(source, None)
        self._filter()

    def reset_from(self, source: int, port: int) -> None:
        """Refuse its packets to ``port`` for long enough that every live connection sends one."""
        rule = [
            "INPUT", "-s", self._addresses[source], "-p", "tcp", "--dport", str(port),
            "-j", "REJECT", "--reject-with", "tcp-reset",
        ]  # fmt: skip
        self._do("iptables", "-w", "-A", *rule)
        try:
            time.sleep(_RESET_S)
        finally:
            self._do("iptables", "-w", "-D", *rule)

    # --- what it sends -----------------------------------------------------------------

    def slow_to(self, target: int, delay_ms: float, bytes_per_s: float) -> None:
        if delay_ms > 0.0 and not has_netem():
            raise TargetError(NO_NETEM)
        if delay_ms > 0.0 or bytes_per_s > 0.0:
            self._slow[target] = (delay_ms, bytes_per_s)
        else:
            self._slow.pop(target, None)
        self._queue()

    # --- as a whole --------------------------------------------------------------------

    def heal(self) -> None:
        if self._cut or self._lost:
            self._cut.clear()
            self._lost.clear()
            self._filter()
        if self._slow:
            self._slow.clear()
            self._queue()

    def restore(self) -> None:
        """Bring a new namespace to what is wanted."""
        if self._cut or self._lost:
            self._filter()
        if self._slow:
            self._queue()

    def _filter(self) -> None:
        self._do("iptables", "-w", "-F", "INPUT")
        for source, share in sorted(self._lost.items()):
            chance = ["-m", "statistic", "--mode", "random", "--probability", f"{share:g}"]
            self._drop(source, *chance)
        for source in sorted(self._cut):
            self._drop(source)

    def _drop(self, source: int, *when: str) -> None:
        address = self._addresses[source]
        self._do("iptables", "-w", "-A", "INPUT", "-s", address, *when, "-j", "DROP")

    def _queue(self) -> None:
        succeeds(*self._within(), "tc", "qdisc", "del", "dev", _DEVICE, "root")
        if self._slow:
            self._do("tc", "qdisc", "add", "dev", _DEVICE, "root", "handle", "1:", "htb")
        for target, (delay_ms, bytes_per_s) in sorted(self._slow.items()):
            for command in queue_commands(target, self._addresses[target], delay_ms, bytes_per_s):
                self._do(*command)

    def _do(self, *command: str) -> None:
        run(*self._within(), *command)


def queue_commands(
    target: int, address: str, delay_ms: float, bytes_per_s: float
) -> list[Sequence[str]]:
    """What slows one destination; packets for others belong to no class and pass."""
    name = f"1:{target}"
    limit = f"{round(bytes_per_s * 8)}bit" if bytes_per_s > 0.0 else _UNLIMITED
    burst = str(max(_MIN_BURST_BYTES, round(bytes_per_s / 20)))
    on = ["dev", _DEVICE]
    commands = [
        ["tc", "class", "add", *on, "parent", "1:", "classid", name, "htb", "rate", limit,
         "burst", burst],
        ["tc", "filter", "add", *on, "parent", "1:", "protocol", "ip", "u32",
         "match", "ip", "dst", f"{address}/32", "flowid", name],
    ]  # fmt: skip
    if delay_ms > 0.0:
        commands.append(
            ["tc", "qdisc", "add", *on, "parent", name, "netem", "delay", f"{delay_ms:g}ms",
             "limit", "100000"]
        )  # fmt: skip
    return list(commands)


@cache
def has_netem() -> bool:
    """Tried out on the loopback device of a namespace that goes with the command."""
    return succeeds("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem")
