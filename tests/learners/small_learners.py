"""Small configurations of the learners that need other values than their defaults to train on a few small images."""

from pathlib import Path

FEW_GLYPHS = str(Path(__file__).parent / "few_glyphs.json")
"""Twelve characters of three scripts for training, nine for the test."""

FEW_DIGITS = str(Path(__file__).parent / "few_digits.json")
"""Eight digits for training, some of which validate, two for the test."""

SMALL = {
    "s2sd": {"learner": {"options": {"dims": [12, 16], "features_after": 2}}},
    "matryoshka": {"learner": {"options": {"sizes": [8, 4, 2]}}},
    "dreml": {"method": "dreml", "options": {"members": 3}},
    "bier": {"method": "bier"},
    "a_bier": {"method": "a_bier", "options": {"hidden": 5}},
    "hdc": {"method": "hdc", "learner": {"options": {"hidden": 6, "dropout": 0.0}}},
    "divide_and_conquer": {"learner": {"options": {"clusters": 2, "joint": 0.1}}},
    "hierarchical_divide_and_conquer": {"learner": {"options": {"clusters": 4, "masks": "learned", "joint": 0.1}}},
    "attributes": {
        "data": {"name": "glyphs", "split": {"file": FEW_GLYPHS}},
        "learner": {"options": {"names": ["script", "block"]}},
    },
    "mic": {"learner": {"options": {"clusters": 4, "rho": 10.0}}},
    "shared_features": {"learner": {"options": {"rho": 10.0}}},
    "diva": {"learner": {"options": {"rho": 10.0, "queue": 30}}},
    "pads": {
        "method": "pads",
        "data": {"split": {"file": FEW_DIGITS}},
        "learner": {"options": {"period": 2}},
    },
    "abe": {"learner": {"options": {"members": 2}}},
}
"""Tables of a run's configuration, by learner."""


def merge(base, tables):
    """The tables of a configuration with further values; a value that is no table replaces the one before."""
    merged = dict(base)
    for name, values in tables.items():
        merged[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return merged
