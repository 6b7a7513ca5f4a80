"""S2SD: what the student learns from its teachers, and what is left of them."""

import pytest
import torch
from making import VECTORS, make, make_batch, require_training_only

from equimetric.errors import EquimetricError
from equimetric.learners.s2sd import similarity_kl

STUDENT = [[-0.026, -0.5, 0.583, -1.231], [0.345, -0.353, -0.074, 0.185], [-0.71, -0.343, -0.132, 0.431]]
STUDENT += [[1.265, -1.775, -0.219, -1.666], [0.342, -0.84, 1.123, -0.391], [0.549, 0.348, 2.061, 0.961]]
TEACHER = [[-0.364, 0.492, 2.012, -0.929, -0.986, 1.237, 1.239], [-0.785, 0.165, -0.83, 0.088, 2.23, -0.753, 0.3]]
TEACHER += [[-0.709, 1.055, -1.085, 0.485, -0.312, 0.523, -0.133], [0.178, 1.417, 0.631, -0.323, -1.241, -0.087, 0.654]]
TEACHER += [[-0.842, -0.744, -2.58, 1.92, 0.363, 0.037, -1.037], [-0.549, 1.676, -0.157, -2.57, 1.759, 1.882, -0.99]]


@pytest.fixture
def worked():
    return [torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in (STUDENT, TEACHER)]


def test_the_worked_value_and_its_gradient(worked):
    student, teacher = worked
    assert similarity_kl(student, teacher).item() == pytest.approx(0.1072780488, abs=1e-9)
    assert torch.autograd.gradcheck(lambda rows: similarity_kl(rows, teacher.detach(), 0.5), student)


def test_the_teacher_gets_no_gradient(worked):
    student, teacher = worked
    similarity_kl(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() > 0


def test_an_equal_teacher_teaches_nothing(worked):
    student, _ = worked
    assert similarity_kl(student, 3 * student, 0.1).item() == pytest.approx(0, abs=1e-12)


def test_the_terms_are_those_of_the_paper():
    learner = make("s2sd", learner={"options": {"dims": [12, 16], "gamma": 7.0, "gamma_features": 3.0}}).train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    terms = learner.losses(outputs, batch)
    teachers = [outputs["teacher1"], outputs["teacher2"]]
    assert [one.shape[1] for one in teachers] == [12, 16]
    own = [learner.objective, *learner.objective_list]
    values = [one(rows, batch.labels) for one, rows in zip(own, [outputs["embedding"], *teachers], strict=True)]
    distilled = [similarity_kl(outputs["embedding"], one) for one in teachers]
    expected = 0.5 * (values[0] + (values[1] + values[2]) / 2) + 7 * (distilled[0] + distilled[1]) / 2
    torch.testing.assert_close(sum(terms.values()), expected)
    learner.before_step(999)
    assert "feature distillation" not in learner.losses(outputs, batch)
    learner.before_step(1000)
    torch.testing.assert_close(
        learner.losses(outputs, batch)["feature distillation"],
        3 * similarity_kl(outputs["embedding"], outputs["features"]),
    )


def test_only_the_student_is_left():
    learner = make("s2sd", method="arcface")
    batch = make_batch()
    cost = require_training_only(learner, batch)
    mlps = sum(1792 * dim + dim + dim * dim + dim for dim in (12, 16))
    assert cost.training_only == mlps + 3 * (8 + 12 + 16), "teachers, and the class weights of each objective"
    assert cost.forward_passes == 1
    assert cost.dim == 8
    assert list(learner.eval().outputs(batch)) == ["embedding"]


def test_late_feature_distillation_is_announced():
    late = make("s2sd", learner={"options": {"dims": [12]}}).delayed_starts()
    assert [(part.first, part.option) for part in late] == [(1000, "learner.options.features_after")]
    assert make("s2sd", learner={"options": {"dims": [12], "gamma_features": 0.0}}).delayed_starts() == []


def test_features_in_place_of_images():
    learner = make("s2sd", VECTORS).train()
    batch = make_batch(VECTORS)
    assert learner.teachers[0][0].in_features == 6
    assert "distillation" in learner.losses(learner.outputs(batch), batch)


def test_wrong_options_are_refused():
    with pytest.raises(EquimetricError, match="dims must be a list of whole numbers of 1 or more, got 512"):
        make("s2sd", learner={"options": {"dims": 512}})
    with pytest.raises(EquimetricError, match="does not show the whole training set"):
        make("s2sd", method="hierarchical_triplet")
