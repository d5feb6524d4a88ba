"""One partition's log: segments, indexes, epochs, producer state, recovery and retention."""
