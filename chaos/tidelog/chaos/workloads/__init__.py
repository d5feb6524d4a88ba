"""What stock clients do to a cluster while it is broken, all of it written down."""
