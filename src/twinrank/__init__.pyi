"""The public names of TwinRank, each with its module.

`__init__.py` reads this file, so that each name is listed once.
"""

from . import embeddings as embeddings
from . import text as text
from . import training as training
from .clicks.click_log import ClickLog as ClickLog
from .clicks.click_models import ClickModelComparison as ClickModelComparison
from .clicks.click_models import compare_click_models as compare_click_models
from .clicks.interleaving import Interleaving as Interleaving
from .clicks.interleaving import InterleavingTest as InterleavingTest
from .clicks.interleaving import interleave as interleave
from .clicks.interleaving import interleaving_test as interleaving_test
from .clicks.log_evaluation import LogEvaluation as LogEvaluation
from .clicks.log_evaluation import evaluate_log as evaluate_log
from .clicks.log_reading import load_clicks as load_clicks
from .clicks.position_bias import estimate_propensities as estimate_propensities
from .clicks.propensities import Propensities as Propensities
from .clicks.simulation import simulate_clicks as simulate_clicks
from .clicks.ubi import load_ubi as load_ubi
from .core.lists import Lists as Lists
from .core.losses.approx_ndcg import ApproxNDCG as ApproxNDCG
from .core.losses.cross_entropy import ListNet as ListNet
from .core.losses.cross_entropy import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from .core.losses.direct import DirectLoss as DirectLoss
from .core.losses.listmle import ListMLE as ListMLE
from .core.losses.mse import MSE as MSE
from .core.losses.pairwise import LambdaLoss as LambdaLoss
from .core.losses.pairwise import LambdaRank as LambdaRank
from .core.losses.pairwise import RankNet as RankNet
from .core.losses.wassrank import WassRank as WassRank
from .core.measures import Measure as Measure
from .core.measures import measure as measure
from .core.measures import register_measure as register_measure
from .core.ranks.exact import exact_ranks as exact_ranks
from .core.ranks.twin import twin_ranks as twin_ranks
from .core.ranks.twin import twin_sigmoid as twin_sigmoid
from .data.dataset import Dataset as Dataset
from .data.folds import Fold as Fold
from .data.layouts import load_folds as load_folds
from .data.loading import load as load
from .data.synthetic import synthetic_web_search as synthetic_web_search
from .data.transforms import Transform as Transform
from .data.transforms import transform as transform
from .deployment.verification import Verification as Verification
from .deployment.verification import verify as verify
from .evaluation.calibration_error import CalibrationEvaluation as CalibrationEvaluation
from .evaluation.calibration_error import evaluate_calibration as evaluate_calibration
from .evaluation.comparison import Comparison as Comparison
from .evaluation.comparison import compare as compare
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.evaluation_values import Evaluation as Evaluation
from .evaluation.metric_plots import draw_cutoffs as draw_cutoffs
from .evaluation.run_evaluation import evaluate_run as evaluate_run
from .evaluation.significance import confidence_interval as confidence_interval
from .evaluation.significance import p_value as p_value
from .evaluation.thresholds import RiskCoverage as RiskCoverage
from .evaluation.thresholds import Threshold as Threshold
from .evaluation.thresholds import risk_coverage as risk_coverage
from .evaluation.thresholds import threshold_for_precision as threshold_for_precision
from .learning.boosting.engine_objectives import lightgbm_metric as lightgbm_metric
from .learning.boosting.engine_objectives import lightgbm_objective as lightgbm_objective
from .learning.boosting.engine_objectives import xgboost_metric as xgboost_metric
from .learning.boosting.engine_objectives import xgboost_objective as xgboost_objective
from .learning.estimators.blend import Blend as Blend
from .learning.estimators.boosted import BoostedRanker as BoostedRanker
from .learning.estimators.explanations import partial_dependence as partial_dependence
from .learning.estimators.explanations import permutation_importances as permutation_importances
from .learning.estimators.ranker import Ranker as Ranker
from .learning.estimators.saved_ranker import load_model as load_model
from .support.errors import DataWarning as DataWarning
from .support.errors import FileError as FileError
from .support.errors import InputError as InputError
from .support.errors import TwinRankError as TwinRankError

__version__: str
