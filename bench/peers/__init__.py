"""`make bench-peers`: Tidelog beside other logs, the same work on one machine in one run.

`peer` says what a peer must be able to do, one module per peer does it, `experiments` holds what is
measured, and `results` keeps and prints it. Peers take turns within every experiment, so that
whatever else the machine does falls on all of them.
"""
