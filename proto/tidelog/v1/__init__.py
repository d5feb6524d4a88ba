"""The contracts between nodes: what ``make proto`` generates from the ``.proto`` files here.

Nothing in this package is written by hand except those contracts.
"""
