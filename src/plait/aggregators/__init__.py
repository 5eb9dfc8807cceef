"""Aggregators: the tasks' gradients on the shared encoder become one.

One file each; importing this package registers them all.
"""

from plait.aggregators.base import AGGREGATORS, Aggregator
from plait.aggregators.pcgrad import PCGrad
from plait.aggregators.sum import Sum

__all__ = ["AGGREGATORS", "Aggregator", "PCGrad", "Sum"]
