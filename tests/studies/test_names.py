"""Names of rows and studies become folders: what cannot be one, or is a file of the study, is refused."""

import pytest

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.studies.configuration import StudyConfig


def study(name="study", row="row"):
    return {"name": name, "methods": {row: {"method": "contrastive"}}}


@pytest.mark.parametrize(
    "name", ["report", "Report", "index.json", "INDEX.JSON", "study.toml", "data.json", "untrained", "Raw_Pixels"]
)
def test_rows_do_not_take_the_place_of_files_of_the_study(name):
    with pytest.raises(EquimetricError, match="names a baseline or a file of the study; choose another name") as error:
        load_config(study(row=name), StudyConfig)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "../up",
        "a/b",
        "/root",
        "a\\b",
        ".hidden",
        "ends.",
        " a",
        "a ",
        "a\nb",
        "o[bold]z",
        "\x1b[2J",
    ],
)
def test_names_are_folders_inside_the_study(name):
    for config in (study(row=name), study(name=name)):
        with pytest.raises(EquimetricError, match="cannot be a folder name; use letters, digits"):
            load_config(config, StudyConfig)


def test_a_name_with_a_nul_is_refused():
    for config in (study(row="a\0b"), study(name="a\0b")):
        with pytest.raises(EquimetricError, match="has a NUL; rename"):
            load_config(config, StudyConfig)


@pytest.mark.parametrize("name", ["con", "NUL", "aux.txt", "Com1"])
def test_names_of_devices_are_refused(name):
    for config in (study(row=name), study(name=name)):
        with pytest.raises(EquimetricError, match="is a device on some systems"):
            load_config(config, StudyConfig)


def test_names_are_not_too_long_for_a_file_system():
    with pytest.raises(EquimetricError, match="too long for a folder name"):
        load_config(study(row="ü" * 150), StudyConfig)


@pytest.mark.parametrize("name", ["Triplet semi-hard", "größe", "v1.2+x", "reports"])
def test_ordinary_names_are_taken(name):
    assert load_config(study(name, name), StudyConfig).name == name
