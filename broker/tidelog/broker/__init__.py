"""What clients talk to: sessions, one handler per API, and the node that wires all rooms."""
