"""Settings that promise what this system lacks: encryption, authentication, authorization,
remote storage, plug-ins written in Java.

Taking such a setting with a shrug would let somebody believe that the promise holds, so a value
that turns the promise on is refused. A value that leaves it off is accepted.
"""

from __future__ import annotations

from typing import Final

_OFF: Final = frozenset({"", "false", "none", "0"})

_PLUGIN: Final = "classes for the JVM cannot be loaded here"
_DEFAULT_PRINCIPALS: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# name → (why it is refused, further values that leave it off)
_BY_NAME: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "alter.config.policy.class.name": (_PLUGIN, frozenset()),
    "authorizer.class.name": ("there is no authorizer here", frozenset()),
    "client.quota.callback.class": (_PLUGIN, frozenset()),
    "config.providers": (_PLUGIN, frozenset()),
    "connections.max.reauth.ms": ("there is no authentication here", frozenset()),
    "controller.quorum.auto.join.enable": (
        "a controller joins only by a command",
        frozenset(),
    ),
    "cordoned.log.dirs": ("log directories cannot be cordoned here", frozenset()),
    "create.topic.policy.class.name": (_PLUGIN, frozenset()),
    "delegation.token.secret.key": ("there are no delegation tokens here", frozenset()),
    "principal.builder.class": (_PLUGIN, frozenset({_DEFAULT_PRINCIPALS})),
    "remote.log.storage.system.enable": ("there is no remote storage here", frozenset()),
    "replica.selector.class": (
        f"only {RACK_AWARE_SELECTOR} is known here",
        frozenset(
            {
                RACK_AWARE_SELECTOR,
                "org.apache.kafka.common.replica.LeaderSelector",
                "RackAwareReplicaSelector",
            }
        ),
    ),
    "security.inter.broker.protocol": (
        "nodes talk to each other without encryption or authentication",
        frozenset({"PLAINTEXT"}),
    ),
    "ssl.client.auth": ("there is no encryption here", frozenset()),
    "ssl.engine.factory.class": (_PLUGIN, frozenset()),
    "transaction.two.phase.commit.enable": (
        "transactions of external coordinators are not supported",
        frozenset(),
    ),
}

NAMES_THAT_MAY_BE_REFUSED: Final = frozenset(_BY_NAME)

_BY_PREFIX: Final = (
    ("config.providers.", _PLUGIN, frozenset[str]()),
    ("sasl.", "there is no authentication here", frozenset({"GSSAPI"})),
    ("ssl.keystore.", "there is no encryption here", frozenset[str]()),
    ("ssl.truststore.", "there is no encryption here", frozenset[str]()),
    ("ssl.key.", "there is no encryption here", frozenset[str]()),
)


def refusal(name: str, text: str) -> str | None:
    """Why this value of this setting cannot be honoured, or None."""
    value = text.strip()
    if value.lower() in _OFF:
        return None
    why, off = _rule(name) or ("", frozenset({value}))
    return None if value in off else why


def may_be_refused(name: str) -> bool:
    """Whether some value of this setting would be refused."""
    return _rule(name) is not None


def _rule(name: str) -> tuple[str, frozenset[str]] | None:
    if name in _BY_NAME:
        return _BY_NAME[name]
    # listener.name.<listener>.<mechanism>.sasl.jaas.config and the like
    if name.startswith("listener.name."):
        return _listener_rule(name)
    for prefix, why, off in _BY_PREFIX:
        if name.startswith(prefix):
            return why, off
    return None


def _listener_rule(name: str) -> tuple[str, frozenset[str]] | None:
    rest = name.removeprefix("listener.name.").partition(".")[2]
    if ".sasl." in f".{rest}":
        return "there is no authentication here", frozenset()
    return _rule(rest) if not rest.startswith("listener.name.") else None
