"""TwinRank: learning to rank on the metric you are judged by.

Exact ranks that carry a gradient: train directly on nDCG, AP, Precision, nERR or your own measure.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twinrank.boosting.functions import (
        lightgbm_metric,
        lightgbm_objective,
        xgboost_metric,
        xgboost_objective,
    )
    from twinrank.data.dataset import Dataset
    from twinrank.data.folds import Fold
    from twinrank.data.layouts import load_folds
    from twinrank.data.loading import load
    from twinrank.data.synthetic import synthetic_web_search
    from twinrank.data.transforms import Transform, transform
    from twinrank.estimators.boosted import BoostedRanker
    from twinrank.estimators.ranker import Ranker
    from twinrank.evaluation.comparison import Comparison, compare
    from twinrank.evaluation.evaluate import evaluate
    from twinrank.evaluation.metric_plots import draw_cutoffs
    from twinrank.evaluation.result import Evaluation
    from twinrank.evaluation.significance import confidence_interval, p_value
    from twinrank.evaluation.trec import evaluate_run
    from twinrank.lists import Lists
    from twinrank.losses.approx_ndcg import ApproxNDCG
    from twinrank.losses.direct import DirectLoss
    from twinrank.losses.lambdaloss import LambdaLoss
    from twinrank.losses.lambdarank import LambdaRank
    from twinrank.losses.listmle import ListMLE
    from twinrank.losses.listnet import ListNet
    from twinrank.losses.mse import MSE
    from twinrank.losses.ranknet import RankNet
    from twinrank.losses.softmax import SoftmaxCrossEntropy
    from twinrank.losses.wassrank import WassRank
    from twinrank.measures import Measure, measure
    from twinrank.ranks.exact import exact_ranks
    from twinrank.ranks.sigmoid import twin_sigmoid
    from twinrank.ranks.twin import twin_ranks
    from twinrank.support.errors import DataWarning, FileError, InputError, TwinRankError

__all__ = [  # noqa: RUF022 (MSE in its place in the alphabet)
    "ApproxNDCG",
    "BoostedRanker",
    "Comparison",
    "DataWarning",
    "Dataset",
    "DirectLoss",
    "Evaluation",
    "FileError",
    "Fold",
    "InputError",
    "LambdaLoss",
    "LambdaRank",
    "ListMLE",
    "ListNet",
    "Lists",
    "MSE",
    "Measure",
    "RankNet",
    "Ranker",
    "SoftmaxCrossEntropy",
    "Transform",
    "TwinRankError",
    "WassRank",
    "compare",
    "confidence_interval",
    "draw_cutoffs",
    "evaluate",
    "evaluate_run",
    "exact_ranks",
    "lightgbm_metric",
    "lightgbm_objective",
    "load",
    "load_folds",
    "measure",
    "p_value",
    "synthetic_web_search",
    "transform",
    "twin_ranks",
    "twin_sigmoid",
    "xgboost_metric",
    "xgboost_objective",
]

_HOME = {
    "ApproxNDCG": "losses.approx_ndcg",
    "BoostedRanker": "estimators.boosted",
    "Comparison": "evaluation.comparison",
    "DataWarning": "support.errors",
    "Dataset": "data.dataset",
    "DirectLoss": "losses.direct",
    "Evaluation": "evaluation.result",
    "FileError": "support.errors",
    "Fold": "data.folds",
    "InputError": "support.errors",
    "LambdaLoss": "losses.lambdaloss",
    "LambdaRank": "losses.lambdarank",
    "ListMLE": "losses.listmle",
    "ListNet": "losses.listnet",
    "Lists": "lists",
    "MSE": "losses.mse",
    "Measure": "measures",
    "RankNet": "losses.ranknet",
    "Ranker": "estimators.ranker",
    "SoftmaxCrossEntropy": "losses.softmax",
    "Transform": "data.transforms",
    "TwinRankError": "support.errors",
    "WassRank": "losses.wassrank",
    "compare": "evaluation.comparison",
    "confidence_interval": "evaluation.significance",
    "draw_cutoffs": "evaluation.metric_plots",
    "evaluate": "evaluation.evaluate",
    "evaluate_run": "evaluation.trec",
    "exact_ranks": "ranks.exact",
    "lightgbm_metric": "boosting.functions",
    "lightgbm_objective": "boosting.functions",
    "load": "data.loading",
    "load_folds": "data.layouts",
    "measure": "measures",
    "p_value": "evaluation.significance",
    "synthetic_web_search": "data.synthetic",
    "transform": "data.transforms",
    "twin_ranks": "ranks.twin",
    "twin_sigmoid": "ranks.sigmoid",
    "xgboost_metric": "boosting.functions",
    "xgboost_objective": "boosting.functions",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch and numba take seconds to load."""
    if name in ("embeddings", "text"):
        return import_module(f"twinrank.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'twinrank' has no attribute {name!r}")
    return getattr(import_module(f"twinrank.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
