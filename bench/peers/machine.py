"""What this machine is, and what its processes use, as the kernel tells it."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BLOCK: Final = 512
_STOLEN: Final = 8
"""Its place in the line of all cores: cpu user nice system idle iowait irq softirq steal."""
_RECLAIMED_PAGES: Final = 1 << 14
PIECE_BYTES: Final = 4 << 20
_HOLE_BYTES: Final = 1 << 40
"""Takes no room, and is read on where the last time ended: no page of it is asked for twice."""
_CALM_S: Final = 3.0
"""Memory that was let go is handed back to the host some two seconds later."""
_CALM_AT_MOST_S: Final = 10.0
_LOOK_S: Final = 0.2


def describe() -> dict[str, str]:
    """Hardware and system, for the result file."""
    memory_kb = _field(Path("/proc/meminfo").read_text(), "MemTotal")
    processor = _field(Path("/proc/cpuinfo").read_text(), "model name")
    return {
        "processor": processor,
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory_kb.split()[0]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        if line.startswith(name):
            return line.removeprefix(name).lstrip(" \t:")
    return "unknown"


class FullMemory:
    """Has no memory lie idle, as on a machine that has been under load for an hour.

    What is free is filled with cached pages of a file that is nothing but a hole, and whoever needs
    memory gets the oldest of them. Otherwise a virtual machine hands free memory back to its host,
    and to get a page again can take several times as long as to fill it: what is measured would be
    the host, and how lately others used its memory. The pages are free again when this object goes.
    """

    def __init__(
        self,
        folder: Path,
        proc: Path = Path("/proc"),
        read: Callable[[int, list[bytearray], int], int] = os.preadv,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._hole: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._hole.truncate(_HOLE_BYTES)
        self._proc = proc
        self._read = read
        self._buffer = bytearray(PIECE_BYTES)
        self._position = 0

    def fill(self) -> None:
        """Until the kernel takes pages back, or as many were read as there are, and some more."""
        left = 1.25 * self._total_bytes()
        until = self._reclaimed_pages() + _RECLAIMED_PAGES
        while left > 0 and self._reclaimed_pages() < until:
            self._read(self._hole.fileno(), [self._buffer], self._position)
            self._position = (self._position + PIECE_BYTES) % _HOLE_BYTES
            left -= PIECE_BYTES

    def close(self) -> None:
        self._hole.close()

    def _total_bytes(self) -> int:
        return int(_field((self._proc / "meminfo").read_text(), "MemTotal").split()[0]) * 1024

    def _reclaimed_pages(self) -> int:
        return int(_field((self._proc / "vmstat").read_text(), "pgsteal_kswapd"))


def await_calm(
    stat: Path = Path("/proc/stat"),
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until the host took nothing for a while, but not for ever: it may be a busy one."""
    deadline = monotonic() + _CALM_AT_MOST_S
    stolen, since = stolen_seconds(stat), monotonic()
    while (now := monotonic()) < min(deadline, since + _CALM_S):
        sleep(_LOOK_S)
        if (newly := stolen_seconds(stat)) > stolen:
            stolen, since = newly, now


def resident_mb(pids: Iterable[int]) -> float:
    """The largest of these processes; pages shared with others count in full."""
    return max(_kilobytes(pid, "status", "VmRSS") for pid in pids) / 1024


def proportional_mb(pids: Iterable[int]) -> float:
    """All of these processes together; a shared page counts once."""
    return sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in pids) / 1024


def _kilobytes(pid: int, file: str, name: str) -> int:
    value = _field(Path(f"/proc/{pid}/{file}").read_text(), name + ":")
    return int(value.split()[0])


def processor_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def stolen_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Processor time that this machine wanted and its host gave to others, on all cores so far."""
    total = stat.read_text().splitlines()[0].split()
    return int(total[_STOLEN]) / _TICKS


def disk_bytes(directories: Sequence[Path], prefix: str) -> int:
    """What is written on disk below these, in folders whose name starts so.

    What is set aside but not written yet counts on neither side: blocks behind the end of a file,
    as Tidelog reserves them, and holes within it, as Kafka's indexes have.
    """
    os.sync()
    return sum(
        _written(Path(folder, name))
        for directory in directories
        for folder, _, names in os.walk(directory)  # what others delete meanwhile is passed over
        if any(part.startswith(prefix) for part in Path(folder).relative_to(directory).parts)
        for name in names
    )


def _written(path: Path) -> int:
    state = path.stat()
    return min(state.st_size, state.st_blocks * _BLOCK)
