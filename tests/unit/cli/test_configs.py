"""``tidelog config``: whose settings, who is asked, and Kafka's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli.configs import parse_added
from tidelog.cli.failures import WrongUse
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[x,y],b=", {"a": "x,y", "b": ""}),
        ("a=[],b=c=d", {"a": "", "b": "c=d"}),
    ],
)
def test_added(text: str, values: dict[str, str]) -> None:
    assert parse_added(text) == values


@pytest.mark.parametrize("text", ["a", "a=1,b", "=1", ""])
def test_nothing_added(text: str) -> None:
    with pytest.raises(WrongUse, match="--add-config"):
        parse_added(text)


class Settings(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.DESCRIBE_CONFIGS: self.describe,
                ApiKey.INCREMENTAL_ALTER_CONFIGS: self.alter,
            }
        )
        self.error = ErrorCode.NONE
        self.known: tuple[str, ...] = ("b",)

    def describe(self, request: Any) -> Mapping[str, Any]:
        (resource,) = request.resources
        own = {2: 1, 4: 2 if resource.resource_name else 3, 32: 8}[resource.resource_type]
        synonyms = [
            {"name": "a", "value": "1", "source": own},
            {"name": "a", "value": "0", "source": 5},
        ]
        configs = [
            *({"name": name, "value": "9", "config_source": 5} for name in self.known),
            {"name": "a", "value": "1", "config_source": own, "synonyms": synonyms},
        ]
        return {"results": [{"configs": configs, "error_code": self.error}]}

    def alter(self, request: Any) -> Mapping[str, Any]:
        return {"responses": [{"error_code": self.error, "error_message": "no"}]}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = Settings()
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize(
    ("arguments", "heading", "source"),
    [
        (("--topic", "t"), "topic t", "DYNAMIC_TOPIC_CONFIG"),
        (("--entity-type", "topics", "--entity-name", "t"), "topic t", "DYNAMIC_TOPIC_CONFIG"),
        (("--broker", "2"), "broker 2", "DYNAMIC_BROKER_CONFIG"),
        (("--cluster",), "the default broker entity", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        (
            ("--entity-type", "brokers", "--entity-default"),
            "the default broker entity",
            "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ),
        (("--group", "g"), "group g", "DYNAMIC_GROUP_CONFIG"),
    ],
)
def test_describe(
    tidelog: Run, settings: Settings, arguments: tuple[str, ...], heading: str, source: str
) -> None:
    assert tidelog("config", "describe", *arguments).out == (
        f"Dynamic configs for {heading} are:\n"
        f"  a=1 sensitive=false synonyms={{{source}:a=1, DEFAULT_CONFIG:a=0}}\n"
    )
    everything = tidelog("config", "describe", *arguments, "--all").out.splitlines()
    assert everything[0] == f"All configs for {heading} are:"
    assert everything[2] == "  b=9 sensitive=false synonyms={}"


def test_a_broker_is_asked_about_itself(tidelog: Run, settings: Settings) -> None:
    tidelog("config", "describe", "--broker", "2")
    assert [address for address, one in settings.asked if one.__api_key__ == 32] == ["node-2:9092"]
    ran = tidelog("config", "describe", "--broker", "7")
    assert (ran.code, ran.err) == (1, "there is no broker 7; there are 1, 2\n")


def test_json(tidelog: Run, settings: Settings) -> None:
    (shown,) = json.loads(tidelog("config", "describe", "--topic", "t", "--json").out)
    assert (shown["type"], shown["name"]) == ("topic", "t")
    (entry,) = shown["configs"]
    assert (entry["name"], entry["value"], entry["source"]) == ("a", "1", "DYNAMIC_TOPIC_CONFIG")


def test_alter(tidelog: Run, settings: Settings) -> None:
    ran = tidelog(
        "config", "alter", "--topic", "t", "--group", "g", "--set", "a=1,2",
        "--add-config", "b=[3,4],c=5", "--unset", "d,e",
    )  # fmt: skip
    assert ran.out == (
        "Completed updating config for topic t.\nCompleted updating config for group g.\n"
    )
    asked = settings.questions(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].resources[0]
    assert [(one.name, one.config_operation, one.value) for one in asked.configs] == [
        ("a", 0, "1,2"), ("b", 0, "3,4"), ("c", 0, "5"), ("d", 1, None), ("e", 1, None),
    ]  # fmt: skip
    shown = tidelog("config", "alter", "--cluster", "--unset", "a", "--json").out
    assert json.loads(shown) == {"altered": [{"type": "cluster", "name": ""}]}


def test_what_the_cluster_refuses(tidelog: Run, settings: Settings) -> None:
    settings.error = ErrorCode.INVALID_CONFIG
    ran = tidelog("config", "alter", "--topic", "t", "--set", "a=1")
    assert (ran.code, ran.out, ran.err) == (1, "", "topic t: no\n")
    settings.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ran = tidelog("config", "describe", "--topic", "t")
    assert (ran.code, ran.err) == (1, "topic t does not exist; tidelog topic list\n")


@pytest.mark.parametrize("whose", [("--broker", "2"), ("--cluster",)])
def test_a_slip_of_the_pen_in_a_broker_s_setting(
    tidelog: Run, settings: Settings, whose: tuple[str, ...]
) -> None:
    """Brokers take names that they do not know."""
    settings.known = ("log.cleaner.threads", "b")
    ran = tidelog("config", "alter", *whose, "--set", "log.cleaner.thread=1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith(
        "unknown setting log.cleaner.thread; did you mean log.cleaner.threads?\n"
    )
    assert "--all lists all" in tidelog("config", "alter", *whose, "--set", "qqqqqqqqq=1").err
    assert settings.questions(ApiKey.INCREMENTAL_ALTER_CONFIGS) == []
    for change in (
        ("--set", "log.cleaner.threads=1"),
        ("--set", "listener.name.inside.b=1"),
        ("--unset", "nobody.knows"),
    ):
        assert tidelog("config", "alter", *whose, *change).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe",), "say whose"),
        (("alter", "--topic", "t"), "say what to change"),
        (("alter", "--topic", "t", "--set", "a"), "must be name=value"),
        (("alter", "--topic", "t", "--set", "a=1", "--unset", "a"), "both set and deleted"),
        (("describe", "--broker", "one"), "--broker"),
        (("describe", "--entity-type", "users", "--entity-name", "u"), "there are topics"),
        (("describe", "--entity-name", "u"), "go with --entity-type"),
        (("describe", "--entity-type", "topics"), "needs --entity-name"),
        (("describe", "--entity-type", "brokers", "--entity-name", "x"), "needs --entity-name"),
    ],
)
def test_wrong_uses(
    tidelog: Run, settings: Settings, arguments: tuple[str, ...], said: str
) -> None:
    ran = tidelog("config", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
