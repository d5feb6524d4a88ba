"""What clients and brokers say to each other: frames, the table of APIs, and the messages.

kio, which knows every message, is loaded when the first message needs it, one version at a time:
all versions together take seconds, and a server uses a few dozen.
"""
