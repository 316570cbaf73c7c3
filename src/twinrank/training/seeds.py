"""Every step has random numbers of its own, so that a run can be taken up anywhere."""

import numpy as np
import torch


def seed_step(device: torch.device, seed: int, epoch: int, step: int, rank: int = 0) -> None:
    """Set torch's generators for one step: dropout, ties and noise depend on nothing else.

    Each of several processes has its own; the first has those of a process alone.
    """
    of = [seed, epoch, step, rank] if rank else [seed, epoch, step]
    words = np.random.SeedSequence(of).generate_state(2, np.uint32)
    number = int(words[0]) << 31 | int(words[1]) >> 1
    if device.type == "cpu":
        # torch.manual_seed would format a traceback for a GPU that may wake up one day.
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)
