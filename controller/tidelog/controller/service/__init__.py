"""The controller of a node: decides while it is active, takes notes while it is not.

====================  =========================================================================
``controller``        the state machine of the quorum: committed and decided image, decisions
``duties``            what the active controller does by itself: fencing, balancing, idle records
``absences``          how long brokers have been away (pure)
``history``           recent committed batches and image snapshots, for those who watch
``watching``          the WatchMetadata stream
``heartbeats``        the Heartbeat stream
``handlers``          the calls: registration, AlterPartition, producer ids, the quorum
``forwarding``        administrative requests of clients; ``admin`` and ``admin_configs`` decide
                      each API, ``admin_codec`` knows their bytes
``contract``          protobuf messages and the decisions' own types
``methods``           the paths of the Controller contract
``node``              puts it all together on a ``PeerServer``
====================  =========================================================================
"""
