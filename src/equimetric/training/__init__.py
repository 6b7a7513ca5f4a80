"""The training loop, its optimisers and checkpoints, and the folder that a run leaves on disk."""

from equimetric.training.embedding import embed_images
from equimetric.training.loop import Trained, load_trained, train
from equimetric.training.run_folder import RunFolder

__all__ = ["RunFolder", "Trained", "embed_images", "load_trained", "train"]
