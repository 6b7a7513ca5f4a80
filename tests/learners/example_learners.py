"""A learner that uses every part of the protocol, for the laws to run over beside the registered ones."""

import torch
from torch import nn

from equimetric.batches import Groups
from equimetric.learners import LEARNERS, Learner, Task, learner

if "everything" not in LEARNERS:

    @learner("everything", paper="none")
    class Everything(Learner):
        """Two embeddings of one backbone, two tasks, a second view, clusters, a hold-out, an EMA and a queue."""

        views = 2
        period = 2

        def __init__(self, network, objective, images, clusters):
            super().__init__()
            self.network = network
            self.objective = objective
            self.second = nn.Linear(network.head.in_features, network.head.out_features)
            self.adversary = nn.Linear(network.head.out_features, 1)
            self.clusters = clusters
            self.register_buffer("cluster", torch.zeros(images, dtype=torch.int64))
            self.register_buffer("mean", torch.zeros(network.head.out_features))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        @classmethod
        def build(cls, factory, *, clusters=3):
            return cls(factory.network(), factory.objective(), factory.images, clusters)

        def prepare(self, images):
            return self.network.prepare(images)

        def outputs(self, batch):
            features = self.network.features(batch.images)
            found = {"first": self.network.head(features), "second": self.second(features)}
            if batch.views:
                found["view"] = self.network(batch.views[0])
            return found

        def embedding(self, outputs):
            return self.normalize(torch.cat([outputs["first"], outputs["second"]], 1))

        def losses(self, outputs, batch):
            name = {"classes": "first", "clusters": "second"}[batch.task]
            guess = self.adversary(outputs[name])
            return {
                batch.task: self.objective(outputs[name], batch.labels, index=batch.index),
                "views": (outputs["first"] - outputs["view"]).square().mean(),
                "adversary": (guess - self.mean.mean()).square().mean(),
            }

        def parameter_groups(self):
            groups = self.network.parameter_groups()
            return {
                **groups,
                "second": self.second.parameters(),
                "adversary": self.adversary.parameters(),
                "objective": self.objective.parameters(),
            }

        def frozen_backbone(self):
            return self.network.backbone

        def features(self, images, stage=None):
            return self.network.features(images)

        def tasks(self):
            return Task("classes", probability=2.0), Task("clusters", labels=self.cluster)

        def groups(self):
            return Groups(self.cluster)

        def holdout(self, labels):
            return torch.arange(0, len(labels), 7)

        def on_epoch(self, view):
            self.calls += 1
            first = view.outputs("first")["first"]
            assert first.shape == (len(view.labels), self.network.head.out_features)
            assert len(view.features()) == len(view.labels)
            assert view.history[-1]["kind"] == "validation"
            rows = self.holdout(view.labels)
            assert 0 <= view.evaluate(rows, ["recall@1"])["recall@1"] <= 1
            order = first[:, 0].argsort().argsort()
            self.cluster.copy_(order * self.clusters // len(order))

        def after_step(self, step):
            with torch.no_grad():
                self.mean.lerp_(self.network.head.weight.mean(1), 0.1)
