"""The campaign of attacks, a few seconds of each."""

import pytest

from campaign.__main__ import in_a_process
from campaign.harness import load_all


@pytest.mark.slow
def test_a_batch_of_every_attack():
    for name in sorted(load_all()):
        cases, problem = in_a_process(name, seed=0, batch=0, seconds=10)
        assert problem is None, f"{name}: {problem}"
        assert cases > 0, name
