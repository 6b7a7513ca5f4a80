"""Plans of studies without data, for tests of what is planned."""

from types import SimpleNamespace

from equimetric.studies.index import StudyIndex
from equimetric.studies.plan import StudyPlan
from equimetric.studies.rows import find_points
from equimetric.studies.study_file import load_study_config

__all__ = ["plan_of"]


def plan_of(study, output, fingerprint="data", index=None):
    """The plan of a study on data that only have a fingerprint."""
    config = load_study_config(study)
    folder = output / config.name
    dataset = SimpleNamespace(class_names=(), fingerprint=fingerprint)
    data = SimpleNamespace(fingerprint=fingerprint, dataset=dataset)
    return StudyPlan(config, folder, dict.fromkeys(find_points(config), data), index or StudyIndex(folder))
