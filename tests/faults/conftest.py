"""One undisturbed run, and its events."""

import pytest
from run_faults import content_of, run_with


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Folder, content and events of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    events, error = run_with(None, folder)
    assert error is None
    return folder, content_of(folder), events.seen
