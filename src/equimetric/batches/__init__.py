"""Batch samplers: which samples form a batch, as seeded and resumable index lists.

`BATCHES` names them all and `build_batches` builds one by name; each registers itself by `@batches("name")` in its own
file (`equimetric.batches.registry`). Mined samplers (`MinedBatches`) need `refresh(embeddings, labels)` first.
"""

from equimetric.batches.base import Batches
from equimetric.batches.class_balanced import ClassBalancedBatches
from equimetric.batches.clusters import ClusterBatches
from equimetric.batches.episodes import EpisodeBatches
from equimetric.batches.exhaustive import ExhaustiveBatches
from equimetric.batches.fixed_triplets import FixedTripletBatches
from equimetric.batches.groups import Groups
from equimetric.batches.hard_classes import HardClassBatches
from equimetric.batches.hierarchy import HierarchyBatches
from equimetric.batches.mined import MinedBatches
from equimetric.batches.n_pairs import NPairBatches
from equimetric.batches.neighbour_classes import NeighbourClassBatches
from equimetric.batches.registry import BATCHES, build_batches
from equimetric.batches.sharded import ShardedBatches
from equimetric.batches.smart_mining import SmartMiningBatches
from equimetric.batches.superclasses import SuperclassBatches

__all__ = [
    "BATCHES",
    "Batches",
    "ClassBalancedBatches",
    "ClusterBatches",
    "EpisodeBatches",
    "ExhaustiveBatches",
    "FixedTripletBatches",
    "Groups",
    "HardClassBatches",
    "HierarchyBatches",
    "MinedBatches",
    "NPairBatches",
    "NeighbourClassBatches",
    "ShardedBatches",
    "SmartMiningBatches",
    "SuperclassBatches",
    "build_batches",
]
