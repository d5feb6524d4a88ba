"""The clusters that can be broken: local processes, network namespaces, containers."""
