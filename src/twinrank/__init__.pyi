"""The public names of TwinRank, each with its module.

`__init__.py` reads this file, so that each name is listed once.
"""

from . import embeddings as embeddings
from . import text as text
from . import training as training
from .boosting.functions import lightgbm_metric as lightgbm_metric
from .boosting.functions import lightgbm_objective as lightgbm_objective
from .boosting.functions import xgboost_metric as xgboost_metric
from .boosting.functions import xgboost_objective as xgboost_objective
from .data.dataset import Dataset as Dataset
from .data.folds import Fold as Fold
from .data.layouts import load_folds as load_folds
from .data.loading import load as load
from .data.synthetic import synthetic_web_search as synthetic_web_search
from .data.transforms import Transform as Transform
from .data.transforms import transform as transform
from .estimators.blend import Blend as Blend
from .estimators.boosted import BoostedRanker as BoostedRanker
from .estimators.model_loading import load_model as load_model
from .estimators.partial_dependence import partial_dependence as partial_dependence
from .estimators.permutation import permutation_importances as permutation_importances
from .estimators.ranker import Ranker as Ranker
from .evaluation.comparison import Comparison as Comparison
from .evaluation.comparison import compare as compare
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.metric_plots import draw_cutoffs as draw_cutoffs
from .evaluation.result import Evaluation as Evaluation
from .evaluation.run_evaluation import evaluate_run as evaluate_run
from .evaluation.significance import confidence_interval as confidence_interval
from .evaluation.significance import p_value as p_value
from .lists import Lists as Lists
from .losses.approx_ndcg import ApproxNDCG as ApproxNDCG
from .losses.direct import DirectLoss as DirectLoss
from .losses.lambdaloss import LambdaLoss as LambdaLoss
from .losses.lambdarank import LambdaRank as LambdaRank
from .losses.listmle import ListMLE as ListMLE
from .losses.listnet import ListNet as ListNet
from .losses.mse import MSE as MSE
from .losses.ranknet import RankNet as RankNet
from .losses.softmax import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from .losses.wassrank import WassRank as WassRank
from .measures import Measure as Measure
from .measures import measure as measure
from .measures import register_measure as register_measure
from .ranks.exact import exact_ranks as exact_ranks
from .ranks.sigmoid import twin_sigmoid as twin_sigmoid
from .ranks.twin import twin_ranks as twin_ranks
from .support.errors import DataWarning as DataWarning
from .support.errors import FileError as FileError
from .support.errors import InputError as InputError
from .support.errors import TwinRankError as TwinRankError

__version__: str
