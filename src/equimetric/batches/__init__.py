"""Which samples meet? Batch samplers: index lists, seeded and resumable."""

from equimetric.batches.class_balanced import ClassBalancedBatches

__all__ = ["ClassBalancedBatches"]
