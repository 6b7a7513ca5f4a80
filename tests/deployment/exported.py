"""A small run and its exported model, for the tests of deployment."""

import json
import shutil

from equimetric.checksums import checksum, json_document, read_json
from equimetric.configuration import load_config
from equimetric.runs.configuration import RunConfig
from equimetric.training import train


def train_small(folder, seed=0, **tables):
    """A run of a few steps on the digits."""
    base = {
        "method": "contrastive",
        "seed": seed,
        "data": {"name": "digits"},
        "model": {"dim": 8},
        "batch": {"classes": 3, "samples": 4},
        "training": {"steps": 4, "validate_every": 2, "log_every": 2},
    }
    merged = {**base, **{name: {**base.get(name, {}), **values} for name, values in tables.items()}}
    return train(load_config(merged, RunConfig), folder=folder)


def copy_model(model, folder):
    """A copy of an exported model to be changed."""
    shutil.copytree(model, folder)
    return folder


def rewrite(folder, name, content):
    """Put another file into an exported model, with a config.json that knows it."""
    (folder / name).write_bytes(content)
    change_config(folder, lambda config: config["files"].update({name: checksum(content)}))


def change_config(folder, change):
    """Change config.json as a program would that knows its checksum."""
    config = read_json(folder / "config.json", dict, "")
    change(config)
    (folder / "config.json").write_text(json_document(config))


def change_json(folder, name, **values):
    """Change values of a JSON file of an exported model, and its checksum in config.json."""
    document = {**json.loads((folder / name).read_text()), **values}
    rewrite(folder, name, json.dumps(document).encode())
