"""The synchronous twins of ``tidelog.client``: the same names, the same arguments, blocking."""

from tidelog.client.sync.admin import Admin
from tidelog.client.sync.consumer import Consumer, RebalanceListener
from tidelog.client.sync.producer import Producer, Transaction, TransactionalProducer

__all__ = [
    "Admin",
    "Consumer",
    "Producer",
    "RebalanceListener",
    "Transaction",
    "TransactionalProducer",
]
