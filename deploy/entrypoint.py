"""What a container runs: prepare the data directories of a node, then be that node.

``server`` (the default) takes settings from /etc/tidelog/server.properties if that is mounted,
from ``KAFKA_…`` and ``TIDELOG_…`` variables and from ``-o``, as ``tidelog server`` does, and adds
what a container needs and nobody gave: where the data is, and HTTP on every interface. If nobody
says who the node is or where its quorum is, it becomes a cluster of its own. Directories without
an identity are given one: ``CLUSTER_ID``, as in Apache Kafka's image.

Any other argument is a command of the command line: ``docker run … tidelog topic list …``.

The process may be PID 1, which the kernel shields from signals that it does not handle; so TERM is
handled from the first line, not only when the node does.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

CONFIG: Final = Path("/etc/tidelog/server.properties")
TIDELOG: Final = "/opt/tidelog/bin/tidelog"
DATA: Final = "/var/lib/tidelog/data"  # not the volume itself: that may have a lost+found
EXIT_USAGE: Final = 2

CONTAINER: Final = {"log.dirs": DATA, "http.listener": ":9644"}
ALONE: Final = {
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""The settings of a node of which nobody said who it is or where its quorum is."""
WHO_AND_WHERE: Final = frozenset(
    {
        "node.id",
        "broker.id",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
    }
)
SYNONYMS: Final = {"log.dirs": "log.dir"}


class CannotPrepare(Exception):
    """The node cannot be started; the text says what to do."""


def is_alone(given: Iterable[str]) -> bool:
    return not WHO_AND_WHERE & set(given)


def additions(given: Iterable[str]) -> dict[str, str]:
    """The settings that are added to those whose names are given."""
    names = set(given)
    wanted = {**CONTAINER, **(ALONE if is_alone(names) else {})}
    return {
        name: value
        for name, value in wanted.items()
        if name not in names and SYNONYMS.get(name) not in names
    }


def chosen_cluster_id(
    asked: str | None, found: Iterable[str], *, alone: bool, random_id: str
) -> str:
    """The cluster of the directories: as asked, as other directories say, or a new one."""
    if asked:
        return asked
    for cluster_id in found:
        return cluster_id
    if alone:
        return random_id
    raise CannotPrepare(
        "the data directory is empty and CLUSTER_ID is not set. Give all nodes the same one;"
        " `tidelog storage random-uuid` makes one"
    )


def given_names(
    file_text: str, environment: Mapping[str, str], overrides: Iterable[str]
) -> set[str]:
    from tidelog.kernel.settings.load import environment_setting
    from tidelog.kernel.settings.properties import MalformedProperties, read_properties

    try:
        in_file = {one.key for one in read_properties(file_text)}
    except MalformedProperties:
        in_file = set()  # the node itself will complain, with the line
    in_environment = {environment_setting(variable) for variable in environment}
    in_overrides = {override.partition("=")[0].strip() for override in overrides}
    return in_file | in_overrides | {name for name in in_environment if name is not None}


def prepare(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Format what needs it; the arguments for ``tidelog server``."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path, default=CONFIG if CONFIG.exists() else None)
    parser.add_argument("-o", dest="overrides", action="append", default=[])
    known, rest = parser.parse_known_args(arguments)
    text = "" if known.config is None else known.config.read_text(encoding="utf-8")
    names = given_names(text, environment, known.overrides)
    overrides = [*known.overrides, *(f"{k}={v}" for k, v in additions(names).items())]
    _format(text, str(known.config), environment, overrides, alone=is_alone(names))
    config = [] if known.config is None else ["--config", str(known.config)]
    return [*config, *(part for one in overrides for part in ("-o", one)), *rest]


def _format(
    text: str,
    file_name: str,
    environment: Mapping[str, str],
    overrides: Sequence[str],
    *,
    alone: bool,
) -> None:
    from tidelog.broker.directories import all_directories
    from tidelog.kernel.ids import NodeId
    from tidelog.kernel.real import OsDisk, SystemRandom
    from tidelog.kernel.settings import InvalidSettings
    from tidelog.kernel.settings.load import load
    from tidelog.storage.format import format_directories, random_uuid, read_identity
    from tidelog.storage.node_files import CorruptNodeFile, InconsistentDirectory

    disk, random = OsDisk(), SystemRandom()
    try:
        settings = load(
            file_text=text, file_name=file_name, environment=environment, overrides=overrides
        ).settings
        paths = all_directories(settings)
        found = [meta.cluster_id for path in paths if (meta := read_identity(disk, path))]
        cluster_id = chosen_cluster_id(
            environment.get("CLUSTER_ID", "").strip(),
            found,
            alone=alone,
            random_id=str(random_uuid(random)),
        )
        format_directories(
            disk,
            paths,
            random,
            cluster_id=cluster_id,
            node_id=NodeId(settings.get_int("node.id")),
            ignore_formatted=True,
        )
    except InvalidSettings as invalid:
        raise CannotPrepare("\n".join(invalid.errors)) from None
    except (CorruptNodeFile, InconsistentDirectory) as problem:
        raise CannotPrepare(str(problem)) from None
    except OSError as error:
        raise CannotPrepare(
            f"{error}. The data directory must be a volume that user {os.getuid()} may write"
        ) from None


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    if arguments and arguments[0] != "server":
        os.execv(TIDELOG, [TIDELOG, *arguments])
    if "-h" in arguments or "--help" in arguments:
        os.execv(TIDELOG, [TIDELOG, "server", "--help"])
    try:
        prepared = prepare(arguments[1:], os.environ)
    except (CannotPrepare, OSError) as problem:
        for line in str(problem).splitlines():
            print(f"tidelog: {line}", file=sys.stderr)
        return EXIT_USAGE
    from tidelog.broker import process

    return process.main(prepared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
