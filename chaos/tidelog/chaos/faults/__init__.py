"""The ways in which a cluster is broken, and when.

``table`` names them, ``schedule`` plans a run from a seed, ``apply`` does one to a target, and a
``ClusterView`` tells it whom to hit.
"""

from tidelog.chaos.faults.applying import AppliedFault, FaultImpossible, apply
from tidelog.chaos.faults.schedule import PlannedFault, counted_schedule, schedule
from tidelog.chaos.faults.table import FAULTS, Family, Fault, UnknownFault, named, too_few_nodes
from tidelog.chaos.faults.view import AdminView, ClusterView

__all__ = [
    "FAULTS",
    "AdminView",
    "AppliedFault",
    "ClusterView",
    "Family",
    "Fault",
    "FaultImpossible",
    "PlannedFault",
    "UnknownFault",
    "apply",
    "counted_schedule",
    "named",
    "schedule",
    "too_few_nodes",
]
