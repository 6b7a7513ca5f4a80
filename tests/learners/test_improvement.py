"""Every ensemble, and every learner of several tasks, learns from a few dozen steps on printed characters."""

import json

import pytest

from equimetric.training import train

LEARNERS = {
    "s2sd": {"method": "multi_similarity", "learner": {"options": {"dims": [64, 128], "features_after": 20}}},
    "matryoshka": {"method": "multi_similarity"},
    "dreml": {"method": "dreml", "options": {"members": 2}},
    "bier": {"method": "bier"},
    "a_bier": {"method": "a_bier"},
    "hdc": {"method": "hdc", "learner": {"options": {"hidden": 64, "dropout": 0.0}}},
    "abe": {"method": "contrastive", "learner": {"options": {"members": 2}}},
    "divide_and_conquer": {"method": "margin", "learner": {"options": {"clusters": 4, "period": 10}}},
    "attributes": {"method": "margin", "learner": {"options": {"names": ["script"]}}},
    "mic": {"method": "margin", "learner": {"options": {"rho": 100.0, "period": 10}}},
    "shared_features": {"method": "margin", "learner": {"options": {"rho": 50.0}}},
    # The decorrelation of slices of 8 dimensions, in place of the paper's 128, is (128 / 8)² times as large.
    "diva": {"method": "margin", "learner": {"options": {"rho": 6.0, "queue": 640}}},
    "hierarchical_divide_and_conquer": {
        "method": "margin",
        "learner": {"options": {"clusters": 4, "masks": "learned", "period": 8}},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_training_improves_over_the_start(name, tmp_path):
    given = LEARNERS[name]
    config = {
        **given,
        "learner": {"name": name, **given.get("learner", {})},
        "data": {"name": "glyphs"},
        "model": {"dim": 32},
        "batch": {"classes": 16, "samples": 4},
        "training": {"steps": 40, "validate_every": 40},
    }
    result = train(config, folder=tmp_path).result
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    start, end = (line["map@r"] for line in lines if line["kind"] == "validation")
    assert end > 1.2 * start
    assert result.cost.dim == 32
