"""``tidelog group explain``: where brokers are asked, and how a rebalance reads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli import group_explain
from tidelog.cli.brokers import BrokerNode
from tidelog.cli.group_explain import Remembered, lines
from tidelog.cli.node_http import Answer, NoHttp, fetch, http_address
from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]
NODE = BrokerNode(1, "broker.example", 9092)


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        ("127.0.0.1:9644", "127.0.0.1:9644"),
        (":9644", "broker.example:9644"),
        ("0.0.0.0:9644", "broker.example:9644"),
        ("[::]:9644", "broker.example:9644"),
        ("[::1]:9644", "[::1]:9644"),
    ],
)
def test_where_http_is(listener: str, address: str) -> None:
    assert str(http_address(NODE, listener)) == address


@pytest.mark.parametrize(("listener", "said"), [("", "no HTTP"), (None, "no HTTP"), ("x", "'x'")])
def test_where_it_is_not(listener: str | None, said: str) -> None:
    with pytest.raises(NoHttp, match=said):
        http_address(NODE, listener)


def rebalance(**changes: Any) -> Remembered:
    values: dict[str, Any] = {
        "broker": 1, "started_ms": 1_700_000_000_007, "joined_ms": 1_700_000_000_107,
        "ended_ms": 1_700_000_000_117, "generation": 4, "causes": (("m-1", "joined"),),
        "causes_left_out": 0, "last_to_join": "m-2", "dropped": (),
    }  # fmt: skip
    return Remembered(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            [
                "2023-11-14 22:13:20.007  generation 4  took 110 ms: 100 ms to join, 10 ms to be "
                "assigned  (broker 1)",
                "    because m-1 joined",
                "    last to join: m-2, after 100 ms",
            ],
        ),
        (
            {"dropped": ("m-3", "m-4"), "causes_left_out": 2},
            [
                "2023-11-14 22:13:20.007  generation 4  took 110 ms: 100 ms to join, 10 ms to be "
                "assigned  (broker 1)",
                "    because m-1 joined",
                "    and 2 more causes",
                "    held up by m-3, m-4, who did not join again in time",
            ],
        ),
        (
            {"joined_ms": None, "ended_ms": None, "generation": None, "last_to_join": None},
            ["2023-11-14 22:13:20.007  not finished  (broker 1)", "    because m-1 joined"],
        ),
        (
            {"ended_ms": None, "last_to_join": None},
            [
                "2023-11-14 22:13:20.007  generation 4  waits for the assignment  (broker 1)",
                "    because m-1 joined",
            ],
        ),
    ],
)
def test_how_a_rebalance_reads(changes: dict[str, Any], text: list[str]) -> None:
    assert list(lines(rebalance(**changes))) == text


def document(*started_ms: int, here: bool = True) -> dict[str, Any]:
    rows = [
        {
            "started_ms": at, "joined_ms": at + 1, "ended_ms": at + 2, "generation": at,
            "causes": [{"at_ms": at, "member_id": "m", "kind": "left"}], "causes_left_out": 0,
            "last_to_join": "m", "dropped": [],
        }
        for at in started_ms
    ]  # fmt: skip
    return {"group": "g", "coordinated_here": here, "rebalances": rows}


class Groups(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__(
            {ApiKey.DESCRIBE_GROUPS: self.describe, ApiKey.DESCRIBE_CONFIGS: self.configs}
        )
        self.told: dict[str, dict[str, Any]] = {}
        self.paths: list[str] = []

    def describe(self, request: Any) -> Mapping[str, Any]:
        state = "Dead" if request.groups[0] == "missing" else "Empty"
        return {"groups": [{"group_id": request.groups[0], "group_state": state}]}

    def configs(self, request: Any) -> Mapping[str, Any]:
        assert request.resources[0].configuration_keys == ("http.listener",)
        return {"results": [{"configs": [{"name": "http.listener", "value": ":9644"}]}]}

    def fetch(self, address: SocketAddress, path: str) -> Answer:
        self.paths.append(path)
        if address.host not in self.told:
            raise NoHttp("refused")
        return Answer(self.told[address.host], None)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    made = Groups()
    made.install(monkeypatch)
    monkeypatch.setattr(group_explain, "fetch", made.fetch)
    return made


def test_all_brokers_are_asked_and_merged_by_time(tidelog: Run, groups: Groups) -> None:
    groups.told = {"node-1": document(1000, 3000, here=False), "node-2": document(2000)}
    shown = json.loads(tidelog("group", "explain", "a/b c", "--json").out)
    assert [(one["started_ms"], one["broker"]) for one in shown] == [
        (1000, 1),
        (2000, 2),
        (3000, 1),
    ]
    assert shown[0]["duration_ms"] == 2
    assert set(groups.paths) == {"/v1/groups/a%2Fb%20c/rebalances"}
    assert tidelog("group", "explain", "g").out.count("because m left") == 3


def test_brokers_that_do_not_answer(tidelog: Run, groups: Groups) -> None:
    groups.told = {"node-2": document()}
    ran = tidelog("group", "explain", "g")
    assert (ran.code, ran.err) == (0, "broker 1: refused\n")
    assert "has not rebalanced" in ran.out
    groups.told = {"node-1": document(here=False)}
    ran = tidelog("group", "explain", "g")
    assert (ran.code, "set http.listener" in ran.err) == (1, True)
    ran = tidelog("group", "explain", "missing")
    assert (ran.code, "does not exist" in ran.err) == (1, True)
    assert tidelog("group", "explain").code == 2


# --- real HTTP ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[SocketAddress]:
    """Answers one path with JSON, everything else with 404."""
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        found = request.startswith(b"GET /known ")
        body = b'{"a": 1}'
        status = b"200 OK" if found else b"404 Not Found"
        writer.write(
            b"HTTP/1.1 " + status + b"\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
            b"Connection: close\r\nContent-Length: 8\r\n\r\n" + body
        )
        await writer.drain()
        writer.close()

    listening = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    host, port = listening.sockets[0].getsockname()
    yield SocketAddress(host, port)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    listening.close()
    loop.close()


def test_fetching(server: SocketAddress) -> None:
    told = fetch(server, "/known")
    assert (told.document, told.date_ms) == ({"a": 1}, 1_700_000_000_000)
    with pytest.raises(NoHttp, match="answers 404"):
        fetch(server, "/unknown")


def test_nobody_serves_http() -> None:
    with pytest.raises(NoHttp, match="cannot be reached from here"):
        fetch(SocketAddress("127.0.0.1", 1), "/known")
