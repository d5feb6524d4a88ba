"""What a node tells about itself in numbers: one table, and what fills it."""
