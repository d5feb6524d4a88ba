"""Where to begin reading: ``earliest``, ``latest``, 42, -10 (the last ten), @TIME."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tidelog.cli.failures import WrongUse

EARLIEST: Final = -2
LATEST: Final = -1
_TAIL_BASE: Final = -2000
"""librdkafka's code for "so many before the end" counts down from here."""
_LARGEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class StartOffset:
    offset: int | None = None
    """As librdkafka takes it: a number, or one of its negative codes."""
    timestamp_ms: int | None = None
    """Or the first record that is not older."""


FROM_THE_BEGINNING: Final = StartOffset(EARLIEST)
FROM_THE_END: Final = StartOffset(LATEST)


def parse_start(text: str) -> StartOffset:
    if text in ("earliest", "beginning"):
        return FROM_THE_BEGINNING
    if text in ("latest", "end"):
        return FROM_THE_END
    if text.startswith("@"):
        return StartOffset(timestamp_ms=_timestamp_ms(text[1:]))
    try:
        number = int(text)
    except ValueError:
        number = _LARGEST
    if not -_LARGEST < number < _LARGEST:
        raise WrongUse(
            f"--offset {text}: earliest, latest, a number, a negative number to count from the "
            "end, or @ and a time (milliseconds since 1970, or 2026-01-31T12:00:00)"
        )
    return StartOffset(number if number >= 0 else _TAIL_BASE + number)


def _timestamp_ms(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(
            f"--offset @{text}: milliseconds since 1970, or a time such as 2026-01-31T12:00:00 "
            "(UTC unless it says otherwise)"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
