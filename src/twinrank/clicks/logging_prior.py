"""What the logging ranker's order alone says about relevance: a prior for credits.

The ranker that collected a log shows documents that it prefers at higher positions, so that they
have a higher exposure e = E / N. All documents of the log together tell how the click rate of seen
documents grows with e:

    C ~ Poisson(E · r),   r = a · e^b,   b ≥ 0

Two numbers are estimated well from a short log. r has the order of the logging ranker, and a credit
that is shrunk towards r stays near that order where the log says little. PRPO (Gupta et al. 2024)
has the same aim: it removes the gradient of documents whose rank has moved too far from that of the
logging ranker. That needs an objective of its own, whereas a prior is part of the labels, and works
for all rankers.
"""

import numpy as np

from twinrank.clicks.click_log import Floats

_STEPS = 50
_CLOSE = 1e-10


def logging_prior(clicks: Floats, exposure: Floats, size: Floats) -> Floats:
    """The relevance of each document that the logging ranker's order implies.

    `size` is the number of impressions of each document's query. Clicks can be negative, without
    those from trust. Documents that were never shown get the value at half of the lowest exposure.
    """
    shown = exposure > 0
    total = clicks[shown].sum()
    prior = np.zeros_like(exposure)
    if total <= 0:
        return prior
    share = exposure[shown] / size[shown]
    level, power = np.log(total / exposure[shown].sum()), 0.0
    x = np.log(share)
    for _ in range(_STEPS):
        expected = exposure[shown] * np.exp(np.clip(level + power * x, -700, 700))
        slope = np.array([(clicks[shown] - expected).sum(), (clicks[shown] - expected) @ x])
        curve = np.array([[expected.sum(), expected @ x], [expected @ x, expected @ x**2]])
        if np.linalg.det(curve) <= _CLOSE * expected.sum() ** 2:  # all have the same exposure
            break
        step = np.linalg.solve(curve, slope)
        step *= min(1, 1 / np.abs(step).max())
        level, power = level + step[0], power + step[1]
        if np.abs(step).max() < _CLOSE:
            break
    if power <= 0:  # documents at the top are not clicked more often, once they are seen
        level, power = np.log(total / exposure[shown].sum()), 0.0
    prior[shown] = np.exp(level + power * x)
    prior[~shown & (size > 0)] = np.exp(level + power * np.log(share.min() / 2))
    return np.minimum(prior, 1)
