"""Judges of histories: pure functions that name what must not have happened."""
