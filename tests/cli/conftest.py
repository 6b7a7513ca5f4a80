"""What the tests of the command line share."""

import pytest


@pytest.fixture
def is_one_sentence():
    """Whether an error is one line for the user, without a traceback."""

    def check(error):
        lines = error.strip().splitlines()
        return len(lines) == 1 and lines[0].startswith("equimetric: ") and "Traceback" not in error

    return check
