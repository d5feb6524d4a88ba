"""The metadata quorum: the Raft machine with a disk, peers and a state machine around it."""
