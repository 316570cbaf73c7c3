"""The names of losses, for modules that must not import torch."""

BUILT_IN_LOSSES = (
    "ListNet", "ListMLE", "SoftmaxCrossEntropy", "MSE", "WassRank", "ApproxNDCG", "RankNet",
    "LambdaRank", "LambdaLoss", "PListMLE", "ADRMSE", "NDCGLoss1", "NeuralNDCG", "PLRank",
    "SigmoidCrossEntropy",
)  # fmt: skip
"""The names of `LOSSES` in `core.losses`."""

METHODS = (
    "LambdaMART", "rank_xendcg", "Ranker", "BoostedRanker", "Blend", "CatBoost", "Clicks",
)  # fmt: skip
"""Objectives of engines, and the estimators that a study compares: no names of own losses."""

OWN_LOSSES: set[str] = set()
"""The names of a user's own losses, which `register_loss` adds."""
