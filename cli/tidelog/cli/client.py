"""librdkafka's clients, made so that their failures read like ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.ask import parse_bootstrap
from tidelog.cli.failures import CommandFailed, WrongUse

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin._metadata import ClusterMetadata

REACH_S: Final = 10.0
_ONLY_CRITICAL: Final = "2"


def client_config(
    bootstrap: str, defaults: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, Any]:
    """What is given beats our defaults. librdkafka's own log lines would only repeat our errors."""
    parse_bootstrap(bootstrap)
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "tidelog-cli",
        "log_level": _ONLY_CRITICAL,
        **defaults,
        **given,
    }


@contextmanager
def making_client() -> Iterator[None]:
    """Settings that librdkafka does not take are a wrong use."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise WrongUse(f"the client refuses its settings: {error.args[0].str()}") from None


def check_reachable(client: Producer | Consumer, bootstrap: str) -> ClusterMetadata:
    """The cluster's topics; fails at once where librdkafka would try for ever."""
    from confluent_kafka import KafkaException

    try:
        metadata: ClusterMetadata = client.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise CommandFailed(
            f"no node answers at {bootstrap} ({error.args[0].str()}). Is a cluster running there? "
            "tidelog up starts one"
        ) from None
    return metadata
