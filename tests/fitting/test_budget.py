import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.fitting.budget import Budget


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_end_has_its_reserve():
    clock = Clock()
    budget = Budget(600, clock)
    assert budget.reserve == 120
    clock.now += 60
    assert (budget.spent, budget.left) == (60, 420)
    assert budget.describe() == "60 s of 10 min used, 9 min left"
    assert Budget(60, clock).left == 15


def test_what_takes_too_long_is_refused_with_the_minutes_it_needs():
    budget = Budget(600, Clock())
    budget.require(480, "the features")
    with pytest.raises(EquimetricError, match="more than fits into 10 minutes; give --minutes 14 or more"):
        budget.require(600, "the features")
    assert Budget(14 * 60, Clock()).left >= 600


def test_a_network_stops_where_the_time_is_up():
    clock = Clock()
    network, budget = torch.nn.Linear(2, 2), Budget(600, clock)
    with budget.stop_in_time(network, "the features"):
        network(torch.zeros(1, 2))
        clock.now += 481
        with pytest.raises(EquimetricError, match="what is done is kept: run the same command again"):
            network(torch.zeros(1, 2))
    network(torch.zeros(1, 2))


def test_no_time_is_an_error():
    with pytest.raises(EquimetricError, match="leaves no time"):
        Budget(0)
