"""Breaking a real cluster on purpose, and judging what its clients saw."""
