"""The model of a gallery: recorded when images are indexed, loaded and checked for searches."""

from __future__ import annotations

from pathlib import Path

from equimetric.deployment.embedder import Embedder
from equimetric.deployment.folder import is_model_folder
from equimetric.deployment.runtimes import RuntimeName
from equimetric.deployment.verify import load_verified
from equimetric.errors import EquimetricError
from equimetric.gallery import Gallery
from equimetric.gallery.model_record import ModelRecord

__all__ = ["load_gallery_model", "record_model", "require_gallery_model"]


def record_model(gallery: Gallery, model: Embedder, folder: str | Path) -> None:
    """Write to the gallery which model makes its vectors, and the folder of that model."""
    require_gallery_model(gallery, model)
    record = ModelRecord.from_model(
        gallery.folder,
        model=model.model,
        preprocessing=model.preprocessing.description,
        runtime=model.arithmetic,
        folder=Path(folder),
    )
    if ModelRecord.read(gallery.folder) != record:
        record.write(gallery.folder)


def load_gallery_model(
    gallery: Gallery, folder: str | Path | None = None, *, runtime: RuntimeName | None = None
) -> Embedder:
    """The model that a gallery was made with, verified on this machine.

    folder  folder of the model, if it has moved
    """
    model_folder = _find_model(gallery) if folder is None else Path(folder)
    model = load_verified(model_folder, runtime=runtime)
    require_gallery_model(gallery, model, model_folder)
    return model


def require_gallery_model(gallery: Gallery, model: Embedder, folder: str | Path | None = None) -> None:
    """Raise an error unless a gallery's vectors are of this model, by preprocessing, arithmetic and cohort, too."""
    certified = gallery.certificate
    subject = "the model" if folder is None else f"the model in {str(folder)!r}"
    try:
        certified.check_compatible(
            model=model.model,
            preprocessing=model.preprocessing.description,
            runtime=model.arithmetic,
            dimension=model.dim,
        )
        if certified.cohort is not None:
            certified.cohort.require(model.cohort)
        elif model.cohort is not None:
            raise EquimetricError("the gallery holds plain embeddings, and the model normalises by a cohort")
    except EquimetricError as error:
        raise EquimetricError(
            f"{subject} is not the one that the gallery {str(gallery.folder)!r} was made with "
            f"({str(error).partition(';')[0]}); restore that model, or index the images again with this one"
        ) from None


def _find_model(gallery: Gallery) -> Path:
    record = ModelRecord.read(gallery.folder)
    if record is None:
        raise EquimetricError(
            f"the gallery {str(gallery.folder)!r} does not say where its model is; give the model's folder with --model"
        )
    folder = record.find(gallery.folder)
    if folder is None or not is_model_folder(folder):
        raise EquimetricError(
            f"the model of the gallery {str(gallery.folder)!r} is no longer in {record.folder!r}; put it back, or give "
            "its folder with --model"
        )
    return folder
