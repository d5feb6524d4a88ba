"""A node's side of the conversation for commands: answers given in advance, questions kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.responses import ResponseStructs, response_structs

Answer = Callable[[Any, ResponseStructs], Any]
"""From a request to a response, built with the structs of that response."""


class ScriptedConnection:
    """Stands in for ``tidelog.cli.ask.Connection``."""

    def __init__(self, answers: Mapping[ApiKey, Answer]) -> None:
        self._answers = answers
        self.questions: list[Any] = []
        self.address = "scripted:9092"

    def __enter__(self) -> ScriptedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def serves(self, api_key: ApiKey, version: int) -> bool:
        return api_key in self._answers

    def ask(self, request: Any) -> Any:
        self.questions.append(request)
        api_key = ApiKey(request.__api_key__)
        assert request.__version__ <= APIS[api_key].max_version
        return self._answers[api_key](request, response_structs(api_key, request.__version__))
