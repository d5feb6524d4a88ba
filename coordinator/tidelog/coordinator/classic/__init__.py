"""The classic group protocol: the machine behind JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

``states`` has the table of states, ``events`` what goes in and comes out, ``core`` the state of one
group, and ``joining``, ``rebalancing``, ``syncing`` and ``leaving`` one part of the story each.
``tidelog.coordinator.classic_group`` puts them together; nobody else needs to look in here.
"""
