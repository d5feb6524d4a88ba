"""The settings of a single consumer group, all of them changeable while it runs."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.settings.topic_table import AT_LEAST_1
from tidelog.kernel.settings.types import Kind, Room, Setting, Synonym, Table, Update, table

GROUP_SETTINGS: Final[Table] = table(
    Setting(
        name="consumer.heartbeat.interval.ms",
        kind=Kind.INT,
        default=5000,
        room=Room.COORDINATOR,
        doc="How often the members of this group are told to heartbeat.",
        update=Update.CLUSTER_WIDE,
        allowed=AT_LEAST_1,
        synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
    ),
    Setting(
        name="consumer.session.timeout.ms",
        kind=Kind.INT,
        default=45_000,
        room=Room.COORDINATOR,
        doc="A member of this group silent for longer is removed.",
        update=Update.CLUSTER_WIDE,
        allowed=AT_LEAST_1,
        synonyms=(Synonym("group.consumer.session.timeout.ms"),),
    ),
)
