"""``--property name=value``, as Kafka's console tools take it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tidelog.cli.failures import WrongUse
from tidelog.kernel.settings.properties import MalformedProperties, parse_properties


def parse_pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    """A name alone stands for the empty text, as in ``null.marker=``."""
    pairs = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise WrongUse(f"{option} {entry}: must be name=value")
        pairs[name] = value
    return pairs


def read_file(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, MalformedProperties) as error:
        raise WrongUse(f"{path}: {error}") from None


def checked_names(properties: Mapping[str, str], known: Collection[str]) -> None:
    if unknown := sorted(properties.keys() - set(known)):
        raise WrongUse(f"unknown property {unknown[0]}; there are {', '.join(sorted(known))}")


def flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise WrongUse(f"{name}={properties[name]}: true or false")
    return text == "true"
