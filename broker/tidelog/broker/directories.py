"""Which directories a node keeps its data in, from its settings."""

from __future__ import annotations

from tidelog.kernel.settings import Settings


def own_directories(settings: Settings) -> list[str]:
    """For the logs of partitions, without doubles."""
    given = settings.get_list("log.dirs") or (settings.get_str("log.dir"),)
    return list(dict.fromkeys(given))


def metadata_directory(settings: Settings) -> str:
    """For the metadata log: ``metadata.log.dir``, or the first of the others."""
    return settings.get_optional_str("metadata.log.dir") or own_directories(settings)[0]


def all_directories(settings: Settings) -> list[str]:
    """Every directory that must have this node's identity."""
    wanted: list[str] = []
    if "controller" in settings.get_list("process.roles"):
        wanted.append(metadata_directory(settings))
    if "broker" in settings.get_list("process.roles"):
        wanted.extend(own_directories(settings))
    return list(dict.fromkeys(wanted))
