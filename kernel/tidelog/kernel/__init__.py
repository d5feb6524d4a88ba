"""The ground floor: ids, error codes, settings, and the ports to the outside world."""
