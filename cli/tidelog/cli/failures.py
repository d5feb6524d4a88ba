"""How a command says that it cannot do what was asked."""

from __future__ import annotations

from tidelog.cli.exit_codes import PROBLEM, USAGE


class CommandFailed(Exception):
    """The text is for people: what went wrong, and what to do about it."""

    exit_code: int = PROBLEM


class WrongUse(CommandFailed):
    """What was given can never work, whatever the state of the world."""

    exit_code = USAGE
