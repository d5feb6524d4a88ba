"""What a broker uses to be part of the cluster: one client for all controllers.

``ControllerClient`` ties it together: heartbeats to every controller, registration, the metadata
feed and calls to whoever is active. ``BrokerLifecycle`` and ``ActiveController`` are pure.
"""
