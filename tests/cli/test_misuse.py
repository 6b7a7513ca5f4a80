"""Options that do not belong to what is given: one sentence each, before anything long is computed."""

import numpy as np
import pytest

import equimetric as em

CLASSES = np.repeat(np.arange(12), 6)
VECTORS = np.random.default_rng(0).normal(size=(12, 8))[CLASSES] + np.random.default_rng(1).normal(size=(72, 8))


@pytest.fixture
def space(tmp_path):
    file = tmp_path / "space.npz"
    np.savez(file, embeddings=VECTORS, labels=CLASSES)
    return file


@pytest.fixture
def refused(equimetric, is_one_sentence):
    def check(*arguments):
        code, _, err = equimetric(*arguments)
        assert code == 2, err
        assert is_one_sentence(err), err
        return err

    return check


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate",),
        ("evaluate", "--trials", "list.csv"),
        ("calibrate", "--far", "0.1"),
        ("identify", "--fpir", "0.1"),
    ],
)
def test_figures_need_a_folder(refused, space, arguments):
    command, *options = arguments
    err = refused(command, space, *options, "--plots", space)
    assert f"--plots takes a folder, and {str(space)!r} is a file" in err


def test_figures_that_cannot_be_written(refused, space, tmp_path):
    (tmp_path / "in the way").touch()
    err = refused("calibrate", space, "--far", "0.1", "--plots", tmp_path / "in the way" / "figures")
    assert "figures cannot be written" in err


def test_options_of_a_run_beside_a_file(refused, space):
    assert "--part chooses classes of a run" in refused("evaluate", space, "--part", "validation")


@pytest.mark.parametrize("command", ["calibrate", "identify"])
def test_a_part_of_a_file(refused, space, command):
    assert "--part chooses classes of a run" in refused(command, space, "--part", "train")


def test_a_part_of_the_run_that_a_file_is_compared_with(refused, space, tmp_path):
    err = refused("evaluate", space, "--compare", tmp_path, "--part", "validation")
    assert "holds no finished training run" in err


def test_labels_beside_a_run(refused, space, tmp_path):
    assert "has its own labels" in refused("evaluate", tmp_path, "--labels", space)


def test_a_second_file_with_two_sets(refused, space, tmp_path):
    both = tmp_path / "both.npz"
    np.savez(both, embeddings=VECTORS, labels=CLASSES, gallery_embeddings=VECTORS, gallery_labels=CLASSES)
    assert "--gallery takes one set of embeddings" in refused("evaluate", space, "--gallery", both)


def test_labels_of_objects_and_missing_arrays(refused, tmp_path):
    objects, named = tmp_path / "objects.npz", tmp_path / "named.npz"
    np.savez(objects, embeddings=VECTORS, labels=CLASSES.astype(str).astype(object))
    np.savez(named, x=VECTORS, labels=CLASSES)
    assert ".astype(str)" in refused("evaluate", objects)
    assert "has no array 'embeddings'; it needs 'embeddings' and 'labels', and has 'x', 'labels'" in refused(
        "evaluate", named
    )


def test_too_few_pairs_to_calibrate_on(refused, space):
    assert "36 samples, because one of 2 folds of the classes is held out: give about" in refused(
        "calibrate", space, "--far", "5e-3"
    )


@pytest.fixture
def run_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('method = "contrastive"\n')
    return file


def test_a_value_where_a_table_is_wanted(refused, run_file):
    err = refused("train", run_file, "--learner", "mic")
    assert "learner is a table, such as [learner] in the file or --learner.KEY on the command line, not 'mic'" in err


def test_a_folder_where_a_configuration_is_wanted(refused, tmp_path):
    assert "is a folder; give the TOML file of a configuration" in refused("train", tmp_path)


def test_a_sum_with_an_empty_term(refused, run_file):
    assert "has a term without a method" in refused("train", run_file, "--method", "contrastive+")
    with pytest.raises(ValueError, match="has a term without a method"):
        em.objective("+triplet")


def test_a_protocol_without_keys_shows_no_empty_table(equimetric):
    code, out, _ = equimetric("protocols", "quick")
    assert code == 0
    assert "key" not in out.split()
