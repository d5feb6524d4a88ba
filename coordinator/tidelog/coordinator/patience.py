"""How long somebody is kept waiting for what needs other nodes (pure).

A broker that is cut off cannot hear that it was replaced: whoever waits there would wait for as
long as the cut lasts, while another broker could serve him. Once no controller has answered for a
session, that is likely; then what does not go through at once is not waited for any longer. What
does go through (the controllers may be gone and the replicas not) is served as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CUT_OFF_PATIENCE_MS: Final = 500.0
"""More than a write takes that goes through."""
_LOOK_MS: Final = 250.0


@dataclass(frozen=True, slots=True)
class Patience:
    timeout_ms: float
    """For one who waits at a broker that is in touch."""

    def is_over(self, waited_ms: float, *, is_cut_off: bool) -> bool:
        limit_ms = min(self.timeout_ms, CUT_OFF_PATIENCE_MS) if is_cut_off else self.timeout_ms
        return waited_ms >= limit_ms

    def next_look_ms(self, waited_ms: float) -> float:
        """When to ask again whether it is over, from now."""
        return max(1.0, min(_LOOK_MS, self.timeout_ms - waited_ms))
