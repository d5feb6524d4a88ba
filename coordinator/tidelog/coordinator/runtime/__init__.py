"""Coordinator shards: one per partition of an internal topic that this broker leads.

The machines of the room decide; what is here loads them from the partition, writes their records
to it, answers who waits, and watches the time. It knows a partition only through ``ports``.
"""
