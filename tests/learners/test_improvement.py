"""Every learner learns from a few dozen steps on printed characters."""

import json

import pytest

from equimetric import learners
from equimetric.intervals import t_interval
from equimetric.training import train

LEARNERS = {
    "single": {"method": "multi_similarity"},
    "naive_ensemble": {"method": "multi_similarity", "learner": {"options": {"members": 2}}},
    "s2sd": {"method": "multi_similarity", "learner": {"options": {"dims": [64, 128], "features_after": 20}}},
    "matryoshka": {"method": "multi_similarity"},
    "dreml": {"method": "dreml", "options": {"members": 2}},
    "bier": {"method": "bier"},
    "a_bier": {"method": "a_bier"},
    "hdc": {"method": "hdc", "learner": {"options": {"hidden": 64, "dropout": 0.0}}},
    "abe": {"method": "contrastive", "learner": {"options": {"members": 2}}},
    "divide_and_conquer": {"method": "margin", "learner": {"options": {"clusters": 4, "period": 10}}},
    "attributes": {"method": "margin", "learner": {"options": {"names": ["script"]}}},
    "mic": {"method": "margin", "learner": {"options": {"rho": 10.0, "period": 10}}},
    "shared_features": {"method": "margin", "learner": {"options": {"rho": 50.0}}},
    # The decorrelation of slices of 8 dimensions, in place of the paper's 128, is (128 / 8)² times as large.
    "diva": {"method": "margin", "learner": {"options": {"rho": 1.0, "queue": 640}}},
    "pads": {"method": "pads", "learner": {"options": {"period": 5}}},
    "two_encoders": {"method": "ntxent", "learner": {"options": {"positives": "class"}}},
    "hierarchical_divide_and_conquer": {
        "method": "margin",
        "learner": {"options": {"clusters": 4, "masks": "learned", "period": 8}},
    },
}


STEPS = {"s2sd": 120, "bier": 120, "a_bier": 120, "diva": 120, "two_encoders": 120}
"""Those that learn slowly at first; the others have 40."""


def start_and_end(name, seed, folder):
    given, steps = LEARNERS[name], STEPS.get(name, 40)
    config = {
        **given,
        "seed": seed,
        "learner": {"name": name, **given.get("learner", {})},
        "data": {"name": "glyphs"},
        "model": {"dim": 32},
        "batch": {"classes": 16, "samples": 4},
        "training": {"steps": steps, "validate_every": steps},
    }
    assert train(config, folder=folder).result.cost.dim == 32
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    start, end = (line["map@r"] for line in lines if line["kind"] == "validation")
    return start, end


def test_every_learner_is_here():
    found = {name: learners.LEARNERS.find(name) for name in learners.LEARNERS}
    own = {name for name, one in found.items() if one.trains and one.__module__.startswith("equimetric.")}
    assert set(LEARNERS) == own


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_the_interval_of_three_seeds_lies_above_the_start(name, tmp_path):
    starts, ends = zip(*(start_and_end(name, seed, tmp_path / str(seed)) for seed in range(3)), strict=True)
    reached = t_interval(ends)
    assert reached.low > max(starts)
    assert ends[0] > 1.2 * starts[0]
