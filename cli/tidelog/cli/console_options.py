"""Arguments that ``tidelog produce`` and ``tidelog consume`` share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


TopicArgument = Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic's name.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The same as the argument.")
]
ClientProperties = Annotated[
    list[str] | None,
    typer.Option("--command-property", metavar="NAME=VALUE", help="A setting of librdkafka."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Settings of librdkafka, as a properties file.",
    ),
]


def one_topic(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"two topics were given: {argument} and {option}")
    return argument or option
