"""A small study with known numbers, and builders for variants of it."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from browser_window import open_browser

from equimetric.evaluation import evaluate
from equimetric.report import EmbeddingsRecord, GalleryRow, RunRecord, StudyRecord
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.evaluation import LabelledEmbeddings, per_query_arrays
from equimetric.runs.profile import profile_part
from equimetric.search_space import Uniform
from equimetric.studies.ledger import Ledger, LedgerEntry
from equimetric.studies.outcomes import ClassList
from equimetric.studies.profiles import MethodProfile, StudyImages
from equimetric.studies.query_scores import QueryComparison
from equimetric.studies.records import SearchRecord
from equimetric.studies.search import ScoredTrial, SearchChoice

HOSTILE_CLASS = "<script>alert(1)</script>"


@pytest.fixture
def run() -> Callable[..., RunRecord]:
    def build(method: str, seed: int = 0, map_at_r: float | None = None, **changes: object) -> RunRecord:
        fields: dict[str, object] = {
            "method": method,
            "kind": "trained",
            "seed": seed,
            "status": "done",
            "error": None,
            "metrics": {} if map_at_r is None else {"map@r": map_at_r},
            "history": (),
            "seconds": 60.0,
            "parameters": 131_904,
        }
        return RunRecord(**{**fields, **changes})

    return build


@pytest.fixture
def study_of() -> Callable[..., StudyRecord]:
    def build(*runs: RunRecord, **changes: object) -> StudyRecord:
        fields: dict[str, object] = {
            "name": "tiny",
            "title": "A tiny study",
            "statement": ("Only the objective differs.",),
            "conditions": {"backbone": "small CNN"},
            "runs": runs,
        }
        return StudyRecord(**{**fields, **changes})

    return build


@pytest.fixture
def picture() -> Callable[..., np.ndarray]:
    def build(channels: int = 1, side: int = 8, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, 256, (channels, side, side), dtype=np.uint8)

    return build


@pytest.fixture
def ledger() -> Ledger:
    """One factor waived, one that differs."""
    return Ledger(
        title="A tiny study",
        waivers={"budget": "as <published>"},
        entries=(
            LedgerEntry(factor="dimension", status="differs", finding="model.dim is 4 for a, 8 for b"),
            LedgerEntry(factor="budget", status="waived", finding="steps are 1 for a", reason="as <published>"),
        ),
        notes=("Test classes were opened once.",),
    )


@pytest.fixture
def study(run, study_of, picture, ledger) -> StudyRecord:
    """Two trained methods (one with a failed run) and two baselines, curves and one gallery row each."""

    def history(*values: float) -> tuple[dict[str, object], ...]:
        training = ({"kind": "train", "step": 0, "loss": 0.5},)
        return training + tuple({"kind": "validation", "step": 100 * k, "map@r": v} for k, v in enumerate(values))

    def both(map_at_r: float, recall: float) -> dict[str, float]:
        return {"map@r": map_at_r, "recall@1": recall}

    row = GalleryRow(picture(), "letter a", ((picture(seed=1), "letter a", True), (picture(3, 80), "letter b", False)))
    return study_of(
        run("contrastive", 0, metrics=both(0.50, 0.800), history=history(0.2, 0.4)),
        run("contrastive", 1, metrics=both(0.52, 0.810), history=history(0.2, 0.5, 0.6)),
        run("contrastive", 2, status="failed", error="the loss became NaN at step 340"),
        run("raw pixels", kind="baseline", metrics=both(0.19, 0.45), seconds=1.25, parameters=0),
        run("untrained", kind="baseline", metrics=both(0.25, 0.50), seconds=1.25),
        run("multi_similarity", 0, metrics=both(0.60, 0.900), history=history(0.2, 0.5)),
        run("multi_similarity", 1, metrics=both(0.62, 0.902), history=history(0.2, 0.6)),
        run("multi_similarity", 2, metrics=both(0.64, 0.904), history=history(0.2, 0.7)),
        galleries={"multi_similarity": (row,), "raw pixels": (row,)},
        ledger=ledger,
    )


@pytest.fixture
def embeddings() -> EmbeddingsRecord:
    """Twelve vectors of three classes, one of them with a hostile name."""
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    return EmbeddingsRecord(
        "space.npz",
        "Embeddings space",
        vectors,
        np.repeat(np.arange(3), 4),
        class_names={0: "a", 1: "b", 2: "<script>alert(1)</script>"},
        metrics={"recall@1": 0.5, "map@r": 0.25},
        intervals={"map@r": (0.2, 0.3)},
        facts={"File": "space.npz"},
    )


@pytest.fixture
def judged_study(run, study_of, picture, ledger) -> StudyRecord:
    """Three methods and a baseline with scores of twelve classes and queries; swept, tuned, with a hostile class."""
    generator = np.random.default_rng(0)
    names = (HOSTILE_CLASS, *(f"class {k}" for k in range(1, 12)))
    classes = ClassList(tuple(range(12)), names, (2,) * 12)
    level = generator.uniform(0.4, 0.6, 12)
    shifts = {"contrastive": 0.0, "margin_miner": 0.004, "triplet": 0.2}

    def one(method, seed, shift, **changes):
        scores = (level + shift + generator.normal(0, 0.02, 12)).clip(0, 1)
        history = tuple({"kind": "validation", "step": 100 * k, "map@r": 0.1 * k + shift} for k in range(1, 4))
        fields = {"metrics": {"map@r": float(scores.mean())}, "per_class": {"map@r": scores}, "classes": classes}
        return run(method, seed, **{"history": history, **fields, **changes})

    runs = [one(method, seed, shift) for method, shift in shifts.items() for seed in range(3)]
    swept = [one(run.method, run.seed, k / 10, point=f"dim {2**k}") for k in range(3) for run in runs]
    tried = tuple(ScoredTrial({"margin": k / 10, "lr": 0.1 * k * k}, 0.5 + k / 100) for k in range(9))
    tuned = SearchChoice({"margin": 0.8, "lr": 6.4}, 8, 0.58, 9, {"margin": "<margin> lies at its edge"})
    queries = np.repeat(level, 2)
    pixels = torch.from_numpy(np.stack([picture(seed=place) for place in range(24)]))
    return study_of(
        *runs,
        one("raw_pixels", 0, -0.3, kind="baseline", history=()),
        sweep_runs=tuple(swept),
        searches={"triplet": SearchRecord({"margin": Uniform(0.0, 1.0), "lr": Uniform(0.0, 9.0)}, tried, tuned, 9)},
        recipes={"contrastive": ("contrastive", {}), "triplet": ("triplet", {})},
        dataset="cub",
        ledger=ledger,
        galleries={
            "triplet": (GalleryRow(picture(), HOSTILE_CLASS, ((picture(seed=1), "class 1", False),)),),
        },
        queries=QueryComparison(
            "map@r",
            np.arange(24),
            tuple(np.repeat(names, 2).tolist()),
            {method: (queries + shift * np.tile([1, -1], 12)).clip(0, 1) for method, shift in shifts.items()},
            {method: (np.arange(24)[:, None] + 1 + k + np.arange(3)) % 24 for k, method in enumerate(shifts)},
            runs=3,
            images=StudyImages(np.arange(24) // 2, names, SimpleNamespace(images=pixels)),
        ),
        configuration='name = "tiny"',
        fingerprint="5443616d",
        environment={"python": "3.11", "torch": "2.13"},
        test_accesses={"train": 10, "evaluate": 1},
        probe_runs=(one("triplet", 0, 0.1, point="blur"),),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of one module, because two of them cannot run in one thread."""
    with open_browser() as opened:
        yield opened


HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def serious_faults() -> Callable[..., list[tuple[str, str]]]:
    """What axe-core finds on an open page that keeps people from using it: rule and element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def find(page: Any) -> list[tuple[str, str]]:
        faults = axe.run(page).response["violations"]
        grave = [fault for fault in faults if fault["impact"] in ("serious", "critical")]
        return [(fault["id"], node["html"]) for fault in grave for node in fault["nodes"]]

    return find


@pytest.fixture(scope="session")
def spaces() -> dict[str, LabelledEmbeddings]:
    """Test embeddings of two methods, 24 classes of 8 images, one with a hostile name."""
    names = (*(f"class {number}" for number in range(23)), HOSTILE)
    labels = torch.arange(24).repeat_interleave(8)

    def embed(seed: int, noise: float) -> LabelledEmbeddings:
        draw = torch.Generator().manual_seed(seed)
        vectors = torch.randn(24, 6, generator=draw)[labels] + noise * torch.randn(192, 6, generator=draw)
        return LabelledEmbeddings(vectors, labels, torch.arange(192), None, None, names)

    return {"contrastive": embed(0, 0.9), "multi_similarity": embed(1, 0.6)}


@pytest.fixture(scope="session")
def closer(spaces) -> dict[str, object]:
    """What a study knows of its methods where their first runs have stored a profile: fields of the record."""
    config = EvaluationConfig()
    profiles = {}
    for method, found in spaces.items():
        scores = evaluate(**found.arrays(), metrics=["map@r", "recall@1"], neighbours=10)
        profiles[method] = MethodProfile(0, profile_part(found, scores, config), per_query_arrays(scores, found))
    labels = spaces["contrastive"].labels.numpy()
    pixels = torch.randint(0, 256, (192, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    names = spaces["contrastive"].class_names
    return {
        "profiles": profiles,
        "images": StudyImages(labels, names, SimpleNamespace(images=pixels)),
        "recipes": {"contrastive": ("contrastive", {}), "multi_similarity": ("multi_similarity", {"alpha": 2.0})},
    }


@pytest.fixture(scope="session")
def class_list(spaces) -> ClassList:
    """The test classes of `spaces`."""
    return ClassList(tuple(range(24)), spaces["contrastive"].class_names, (8,) * 24)
