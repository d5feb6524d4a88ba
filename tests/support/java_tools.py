"""Apache Kafka's own command-line tools, run as a person would run them.

The jars are those of ``tests/java/pom.xml``, fetched by ``make test-java``. A virtual machine
starts in about a second if it is told not to try hard.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

JARS: Final = Path(__file__).parents[2] / "build" / "kafka"

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP_LOG: Final = "org.apache.kafka.tools.DumpLogSegments"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"

_QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
_LOG: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_HARMLESS: Final = (
    "Processed a total of",
    "The consumer rebalance protocol (KIP-848) is",
    "Consumer group 'readers-",  # has no active members, which is said but is no fault
)
_TOOL_S: Final = 60.0


def command(tool: str, arguments: Sequence[str]) -> list[str]:
    return ["java", *_QUICK_START, _LOG, "-cp", f"{JARS}/*", tool, *arguments]


def run(tool: str, *arguments: str, lines: Sequence[str] = ()) -> str:
    """What the tool printed; it must end well and must not complain."""
    done = subprocess.run(
        command(tool, arguments),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=_TOOL_S,
        check=False,
    )
    assert done.returncode == 0, f"{tool} {arguments}: {done.stdout}{done.stderr}"
    assert not complaints(done.stderr), f"{tool} {arguments}: {done.stderr}"
    return done.stdout


def complaints(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line and not line.startswith(_HARMLESS)]


class RunningTool:
    """A tool that is talked to while it runs; its lines are gathered as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._news = threading.Condition()
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self.lines), (process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def say(self, lines: Sequence[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def wait_for_lines(self, count: int) -> None:
        with self._news:
            came = self._news.wait_for(lambda: len(self.lines) >= count, _TOOL_S)
        assert came, f"{len(self.lines)} of {count} lines came: {self.errors}"

    def wait_for_end(self) -> None:
        """No more is said to it; it must end well and must not have complained."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_TOOL_S) == 0, self.errors
        for reader in self._readers:
            reader.join(_TOOL_S)

    def _read(self, stream: IO[str] | None, lines: list[str]) -> None:
        assert stream is not None
        for line in stream:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()


@contextmanager
def started(tool: str, *arguments: str) -> Iterator[RunningTool]:
    with subprocess.Popen(
        command(tool, arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield RunningTool(process)
        finally:
            process.kill()
