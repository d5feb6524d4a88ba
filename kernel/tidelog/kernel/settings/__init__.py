"""Settings: one table per scope, how values are given, and what a broker and a topic run with.

Start-up reads settings with `tidelog.kernel.settings.load.load`; it and the addresses
(`checks.endpoints`) are not imported here, so that a log that needs a TopicConfig stays light.
"""

from tidelog.kernel.settings.topic_config import TopicConfig, parse_topic_overrides, topic_chain
from tidelog.kernel.settings.types import InvalidSettings, InvalidValue, Setting
from tidelog.kernel.settings.values import Link, Origin, Settings

__all__ = [
    "InvalidSettings",
    "InvalidValue",
    "Link",
    "Origin",
    "Setting",
    "Settings",
    "TopicConfig",
    "parse_topic_overrides",
    "topic_chain",
]
