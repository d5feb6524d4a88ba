"""What an active controller counts for whoever watches it."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.controller.metadata import records as r
from tidelog.kernel.meters import Spread


class ControllerMeters:
    def __init__(self) -> None:
        self.leader_elections = 0
        """Partitions that were given another leader, or the same one in another epoch."""
        self.unclean_elections = 0
        """Those of them whose new leader may lack what was acknowledged."""
        self.failover_durations_ms = Spread()
        """From when a broker is found lost until others lead its partitions, committed."""

    def decided(self, records: Iterable[r.MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, r.PartitionChange) and record.leader is not None:
                if record.leader != r.LEADERLESS:
                    self.leader_elections += 1
                if record.leader_recovery == r.LeaderRecovery.RECOVERING:
                    self.unclean_elections += 1
