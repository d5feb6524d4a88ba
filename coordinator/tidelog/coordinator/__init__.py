"""Consumer groups and committed offsets: what a group coordinator decides, without any I/O."""
