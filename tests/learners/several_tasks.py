"""What the tests of learners with several tasks have in common."""

from equimetric.training import loop


def note_batches(monkeypatch, note):
    """Every batch that a run trains on, with what `note(learner)` gives at that time."""
    seen = []
    backward = loop.backward

    def look(trainable, batch, *given, **options):
        seen.append((batch, note(trainable.learner)))
        return backward(trainable, batch, *given, **options)

    monkeypatch.setattr(loop, "backward", look)
    return seen
