"""What the active controller decides, as pure functions of the metadata image.

A decision is a pair: the records that make it true, and the answer for whoever asked. The caller
replays the records into its image, appends them to the metadata log in one batch, and gives the
answer once they are committed (NOT_CONTROLLER if leadership is lost before). Nothing here knows
about time, chance, disk or network; the random numbers for placement and topic ids come in
through the ``Random`` port.

=================  ============================================================================
``registration``   brokers come and go by incarnation
``broker_states``  heartbeats, fencing and unfencing, controlled shutdown
``directories``    failed log directories, and where replicas live
``partition_plan`` one partition's next state: ISR, ELR, leader, reassignment
``leaders``        ElectLeaders, preferred-leader balancing, leaderless partitions
``alter_partition`` what leaders report about their ISR
``reassignment``   moving replicas
``create_topics``, ``delete_topics``, ``add_partitions``, ``placement``, ``assignments``
``configs``        incremental and whole-set changes of configuration
``features``       feature levels, and the first records of a cluster
``producer_ids``   blocks of producer ids
``restart_empty``  replicas that must start over (compaction with absent replicas)
=================  ============================================================================
"""
