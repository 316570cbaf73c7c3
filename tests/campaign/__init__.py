"""A campaign of attacks: damaged, hostile and extreme input, kills, and many calls at once.

    python -m tests.campaign --minutes 30 --seed 0

Every batch of cases runs in a process of its own, so that a crash is a failure like any other. The
attacks share no parser with the library.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the references beside this package
