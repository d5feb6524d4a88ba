"""The parts of the machine for one group of the consumer protocol (KIP-848).

``core`` keeps the state, which is nothing but the group's records; ``heartbeat``, ``leaving`` and
``classic_members`` answer requests; ``subscribing``, ``assigning`` and ``reconciling`` are the
three steps from a change to an assignment that is in force; ``conversion`` is the way to and from
a classic group. ``tidelog.coordinator.consumer_group`` puts them together.
"""
