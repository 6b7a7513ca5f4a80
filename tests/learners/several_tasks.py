"""What the tests of learners with several tasks have in common."""

import json

import torch

from equimetric.training import loop, train


def note_batches(monkeypatch, note):
    """Every batch that a run trains on, with what `note(learner)` gives at that time."""
    seen = []
    backward = loop.backward

    def look(trainable, batch, *given, **options):
        seen.append((batch, note(trainable.learner)))
        return backward(trainable, batch, *given, **options)

    monkeypatch.setattr(loop, "backward", look)
    return seen


def assert_improves(name, options, folder, **tables):
    """A short run on glyphs validates better than its start."""
    config = {
        "method": "margin",
        "learner": {"name": name, "options": options},
        "data": {"name": "glyphs"},
        "model": {"dim": 32},
        "batch": {"classes": 16, "samples": 4},
        "training": {"steps": 60, "validate_every": 20},
        **tables,
    }
    train(config, folder=folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [line["map@r"] for line in lines if line["kind"] == "validation"]
    assert max(found[1:]) > found[0], found


def assert_embeddings_ignore_training_only(learner, images):
    """Embeddings stay the same when every parameter that only training needs is replaced."""
    learner.eval()
    with torch.no_grad():
        before = learner.embed(images)
        changed = 0
        for module in learner.training_only():
            for parameter in module.parameters():
                parameter.add_(1.0)
                changed += 1
        assert changed
        assert torch.equal(learner.embed(images), before)
