"""Migrating from other libraries: the rows of `equimetric.objectives.counterparts` as tables."""

from collections import Counter
from collections.abc import Iterable

from equimetric.objectives.counterparts import LIBRARIES, Counterpart, counterparts

__all__ = ["migration_pages"]

VERSIONS = {"pytorch-metric-learning": "2.9.0", "open-metric-learning": "4.0"}
"""Library → the version whose names have rows."""

AROUND = {
    "pytorch-metric-learning": {
        "AccuracyCalculator": ("em.evaluate", "Metrics by name, in one scan; intervals with it."),
        "testers.GlobalEmbeddingSpaceTester": ("em.evaluate", "Embeddings are given; a run evaluates itself."),
        "trainers.MetricLossOnly": ("em.train", "A whole run from a configuration; or your own loop."),
        "trainers.TrainWithClassifier, CascadedEmbeddings": ("em.objective", "A sum of objectives, or a learner."),
        "utils.distributed.DistributedLossWrapper": ("em.objective", "Option `gather=True`."),
        "utils.distributed.DistributedMinerWrapper": ("em.objective", "The selection sees the gathered batch."),
        "utils.inference.InferenceModel, FaissKNN": ("em.Gallery", "Exact search, on disk, under a certificate."),
        "utils.inference.MatchFinder": ("em.calibrate", "A threshold for a rate, with bounds for new classes."),
        "utils.logging_presets": ("em.train", "Logs and checkpoints are part of a run."),
    },
    "open-metric-learning": {
        "metrics.EmbeddingMetrics": ("em.Accumulator", "`update` and `compute`, over several ranks, too."),
        "retrieval.RetrievalResults": ("em.Gallery", "Exact search; `search` gives ids and similarities."),
        "datasets.ImageQueryGalleryLabeledDataset": ("em.load_dataset", "A manifest with queries and gallery."),
        "lightning.ExtractorModule": ("em.train", "Or a module of your own: see In your loop."),
        "registry, pipelines": ("em.train", "One configuration file, `equimetric train`."),
    },
}
"""Library → what stands around its losses: its name → (ours, in a sentence)."""

MARKS = {"agrees": "equal", "differs": "differs", "none": "none"}


def migration_pages() -> dict[str, tuple[str, str]]:
    """An index, and a page for each library."""
    pages = {f"migrating/{library}.md": (library, library_page(library)) for library in LIBRARIES}
    links = "\n".join(f"* [from {library}]({library}.md)" for library in LIBRARIES)
    index = (
        "# Migrating\n\nEvery public loss, miner, sampler, distance, reducer and metric of two libraries, with what"
        " stands for it here. Both sides of a row marked *equal* were computed on the same batch in float64 and agree"
        " within 10⁻⁶, gradients included, unless it draws at random; the tests keep it so. Where a row differs, it"
        f" says why.\n\n{links}\n"
    )
    return {"migrating/index.md": ("Migrating", index), **pages}


def library_page(library: str) -> str:
    """All rows, kind by kind."""
    rows = counterparts(library)
    verdicts = Counter(row.verdict for row in rows)
    compared = sum(bool(row.compared) for row in rows)
    sections = [
        f"---\nhide: [toc]\n---\n\n# From {library}\n",
        f"Names are those of version {VERSIONS[library]}.\n",
        f"{len(rows)} rows: {verdicts['agrees']} equal, {verdicts['differs']} that differ for the reason given,"
        f" {verdicts['none']} without a counterpart. Values of {compared} were computed on both sides.\n",
    ]
    for kind in dict.fromkeys(row.kind for row in rows):
        sections += [f"## {kind.capitalize()}\n", table(row for row in rows if row.kind == kind)]
    sections += ["## Around the losses\n", "| theirs | here | |\n|---|---|---|"]
    sections += [f"| `{theirs}` | `{ours}` | {says} |" for theirs, (ours, says) in AROUND[library].items()]
    return "\n".join(sections)


def table(rows: Iterable[Counterpart]) -> str:
    """Theirs, ours, whether they agree, and why not."""
    lines = ["| theirs | here | | |", "|---|---|---|---|"]
    for row in rows:
        plain = row.theirs in row.example and not row.example.startswith("lambda")
        theirs = f"`{row.example if plain else row.theirs}`"
        ours = f"`{row.construction}`" if row.construction else "–"
        lines.append(f"| {theirs} | {ours} | {MARKS[row.verdict]} | {row.reason} |".replace("||", "| |"))
    return "\n".join(lines) + "\n"
