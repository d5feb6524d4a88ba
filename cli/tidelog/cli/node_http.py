"""What nodes tell over HTTP, for a user who only has a bootstrap address.

A broker's own settings say where it serves HTTP (``http.listener``), and any broker tells them of
itself over the Kafka protocol. A listener on every interface is reached by the name that the
broker advertises. Nodes that serve no HTTP, or not to this machine, are told apart by why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from tidelog.cli.brokers import BrokerNode, Brokers
from tidelog.cli.configs import Entity, Kind, describe_entity
from tidelog.kernel.addresses import SocketAddress

_SETTING: Final = "http.listener"
_TIMEOUT_S: Final = 5.0
_ANYWHERE: Final = ("", "0.0.0.0", "::")


class NoHttp(Exception):
    """The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    document: Any
    date_ms: int | None
    """When the node answered, by its own clock; whole seconds."""


def http_address(node: BrokerNode, listener: str | None) -> SocketAddress:
    """Where this machine should dial for a listener such as ``127.0.0.1:9644`` or ``:9644``."""
    if not listener:
        raise NoHttp(f"it serves no HTTP ({_SETTING} is empty)")
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    if not port.isascii() or not port.isdigit():
        raise NoHttp(f"{_SETTING} is {listener!r}, which is no address")
    return SocketAddress(node.host if host in _ANYWHERE else host, int(port))


def find_http(brokers: Brokers, node: BrokerNode) -> SocketAddress:
    entries = describe_entity(brokers, Entity(Kind.BROKER, str(node.node_id)), [_SETTING])
    own = next((one for one in entries if one.name == _SETTING), None)
    if own is None:
        raise NoHttp(f"it knows no setting {_SETTING}")
    return http_address(node, own.value)


def fetch(address: SocketAddress, path: str) -> Answer:
    """A JSON document; proxies of this machine's environment are for other things."""
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{path}", timeout=_TIMEOUT_S) as response:
            return Answer(json.load(response), _date_ms(response.headers.get("Date")))
    except HTTPError as error:
        raise NoHttp(f"{address} answers {error.code} to {path}") from None
    except (URLError, OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NoHttp(
            f"{address} cannot be reached from here ({reason}); {_SETTING} says where it listens"
        ) from None


def _date_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except ValueError:
        return None


def quoted(name: str) -> str:
    return quote(name, safe="")
