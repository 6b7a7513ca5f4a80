"""Schemas of the service's responses."""

from __future__ import annotations

from pydantic import BaseModel, Field

__all__ = [
    "AddResponse",
    "EmbeddedImage",
    "Embeddings",
    "FoundItem",
    "GalleryDescription",
    "Health",
    "IdentifyResponse",
    "RemoveResponse",
    "SearchResponse",
    "UploadLimits",
    "VerifyResponse",
]


class EmbeddedImage(BaseModel):
    """The vectors of one image."""

    embedding: list[float] = Field(description="Unit length.")
    query: list[float] | None = Field(None, description="With a cohort: the vector to search by.")
    gallery: list[float] | None = Field(None, description="With a cohort: the vector to store.")


class Embeddings(BaseModel):
    """The vectors of all images, in their order."""

    model: str = Field(description="sha256 that identifies the model.")
    dimension: int
    images: list[EmbeddedImage]


class DecisionResponse(BaseModel):
    """What a decision rests on."""

    threshold: float = Field(description="The certified threshold.")
    rule: str = Field(description="'distance < threshold', or with a cohort 'score > threshold'.")


class FoundItem(BaseModel):
    """An item of the gallery that is close to the image."""

    id: str
    name: str = Field(description="Its identity: the label, or where there are none the id.")
    score: float = Field(description="The distance, or with a cohort the score.")
    accepted: bool = Field(description="Whether the certificate accepts it as the same.")


class SearchResponse(DecisionResponse):
    """The closest items, the closest first."""

    name: str | None = Field(description="The name that the certificate accepts; null: unknown.")
    matches: list[FoundItem]


class IdentifyResponse(DecisionResponse):
    """Who an image shows."""

    name: str | None = Field(description="null for a stranger.")
    id: str | None = Field(description="The closest item of that name.")
    score: float | None


class VerifyResponse(DecisionResponse):
    """Whether two are the same."""

    same: bool
    score: float


class AddResponse(BaseModel):
    """An item that is now on the disk."""

    id: str
    items: int = Field(description="How many items the gallery has.")


class RemoveResponse(BaseModel):
    """Items that are no longer found."""

    ids: list[str]
    items: int = Field(description="How many items the gallery has.")


class UploadLimits(BaseModel):
    """What is accepted."""

    bytes: int = Field(description="Of a request.")
    pixels: int = Field(description="Of an image.")
    images: int = Field(description="Of a request to /embed.")
    neighbours: int = Field(description="Of a search.")


class GalleryDescription(DecisionResponse):
    """What is served."""

    name: str
    items: int
    tasks: list[str] = Field(description="What its certificates are for: verification, identification.")
    measure: str = Field(description="What is compared with the threshold, in words.")
    identity: str | None = Field(description="The metadata column that names items; null: their ids do.")
    dimension: int
    model: str = Field(description="sha256 that identifies the model.")
    writable: bool
    thumbnails: bool
    limits: UploadLimits


class Health(BaseModel):
    """That the service answers."""

    status: str
    version: str
    key: bool = Field(description="Whether calls need an API key.")
