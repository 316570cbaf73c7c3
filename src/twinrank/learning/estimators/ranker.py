"""`Ranker`: a neural ranker that is trained on the measure it is judged by."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform, transform
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.estimators.parameters import named_columns
from twinrank.learning.estimators.training_data import FitArguments
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.fit_arguments import KnownColumns, TrainingSet, as_dataset, labelled
from twinrank.learning.training.learner import learner_class
from twinrank.learning.training.matched_data import check_values
from twinrank.learning.training.run_folder import Run
from twinrank.support.errors import InputError


class Ranker(BaseRanker):
    """A neural ranker with scikit-learn's interface, trained on the measure it is judged by.

    Parameters that are "auto" have a default for each mode, shown as "default / paper". The mode
    "paper" has the settings of Yu (2020). Explicit values override them.

    Parameters
    ----------
    objective : str, Measure or callable, default "nDCG"
        What is optimised: a measure ("nDCG", "AP", "P@5", …), a loss by name ("ListNet",
        "ApproxNDCG(alpha=5)", …), a weighted sum of them ("nDCG + 0.5 * SigmoidCrossEntropy", for
        calibrated scores), or any callable (scores, labels, lists) that returns a loss.
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How a measure passes its gradient to the scores.
    alpha : float, default 1.0
        The steepness of the backward sigmoid.
    perturbation : float or "auto" (2 / 0)
        The scale of the Gumbel noise that is added to the scores before they are ranked.
    samples : int or "auto" (5 / 1)
        The number of perturbed rankings that a gradient is averaged over.
    architecture : str, torch.nn.Module or callable, or "auto" ("Small" / "CE4.L")
        "Small" is "MLP(width=64, depth=3, dropout=0.3)"; on more than 60,000 documents the default
        is wider, up to 256, with less dropout. Others: any "MLP(…)", "Linear", the
        paper's "R5", "CE5", "R4.L" and "CE4.L". Options are written in brackets: "context=pool" or
        "context=attention" (documents see the others of their query), "shared=true" (the nets of
        an ensemble share weights), "embedding=linear" or "embedding=periodic". Or your own net: a
        module, a function or class called with the number of features, or its import path
        "package.module:name". It is called as `net(X, lists)` or `net(X)` and returns one score
        per document.
    ensemble_size : int or "auto" (5 to 1 / 1)
        The number of nets that are trained and averaged, each kept at an epoch of its own unless
        they share weights. The default is 5 for the default architecture on up to 60,000
        documents, 4 on 100,000, 2 on 300,000 and 1 on a million; it is 1 for other
        architectures.
    mode : {"default", "paper"}, default "default"
        The defaults of all parameters that are "auto". In mode "paper", batch norm uses the
        statistics of each query. Queries with fewer than 10 documents or without a relevant one are
        left out of training and evaluation sets; a `DataWarning` says how many.
    transforms : str or sequence of str, or "auto"
        Transforms of the features, one after the other with "+", side by side with "|", as in
        "QueryZScore | SignedLog1p + Standardise". The default "auto" is z-scores within the query
        beside normal scores of the training data's quantiles, clipped at 3, and a column for each
        feature with missing values that marks them (MissingIndicator). It is "QueryZScore" in mode
        "paper" and for nets of your own. Missing values (NaN) become the mean with QueryZScore and
        Standardise, the minimum with QueryMinMax, the median with Quantile and 0 with
        PiecewiseLinear. They raise an error elsewhere.
    feature_noise : float or "auto" (0.2 / 0.0)
        The standard deviation of Gaussian noise that is added to the transformed features in
        training, but not to categories. Nets of your own have none by default.
    categorical_features : sequence of int or str, optional
        Columns, by number or name, with the number of a category; columns of text, and of a
        frame's type for categories, are always categorical. They get embeddings. The 255 most
        frequent categories of a column have codes of their own; the others share that of unknown
        ones, and missing ones (NaN, −1, empty) have their own.
    epochs : int or "auto" (100 to 5 / 100)
        The maximum number of epochs. The default is 100 on up to 300,000 documents, 30 on a million
        and 8 on 3.7 million, so that the work is bounded.
    batch_documents : int or "auto" (a fiftieth of the data, 500 to 4,000 / 1)
        Documents per step; a step has whole queries, at least one.
    shuffle : bool or "auto" (True / False)
        Whether queries are shuffled in every epoch.
    learning_rate : float or "auto" (3e-3 / 1e-3)
        The learning rate of the first epoch.
    optimiser : {"adam", "adamw", "sgd"}, default "adam"
        The optimiser.
    weight_decay : float or "auto" (0 / 1e-3)
        An L2 penalty for "adam" and "sgd", decoupled for "adamw".
    schedule : {"constant", "halve", "cosine"} or "auto" ("constant" / "halve")
        How the learning rate changes. The default is "cosine", down to 0 in the last epoch, on
        more than 300,000 documents, where the number of epochs is limited.
    halve_every : int, default 20
        The number of epochs after which "halve" halves the learning rate.
    clip : float, optional
        The maximum norm of the gradient.
    precision : {"full", "mixed"}, default "full"
        "mixed" trains in bfloat16 where that is safe; it needs a GPU.
    pretrain_epochs : int, default 20
        The number of epochs of pre-training, if `fit` gets unlabelled lists.
    pretrain_corruption : float, default 0.3
        The share of a document's features that each view of it replaces in pre-training.
    teacher_weight : float, default 0.5
        The weight of the teacher's scores against the objective, above 0 and at most 1, if `fit`
        gets a teacher.
    validation_measure : str or Measure, default "nDCG@5"
        The measure on evaluation sets and in `score`.
    validate_every : int or "auto" (1 / 2)
        The number of epochs between evaluations.
    select : str, optional
        The name of the evaluation set that selects the epoch; by default "validation", or
        else the first.
    early_stopping : int, None or "auto" (10 / None)
        Stop after this many epochs without improvement; None trains all epochs.
    tolerance : float or "auto" (1 / 0)
        Keep the last epoch that is less than this many standard errors of the difference, paired
        by query, below the best; 0 keeps the best epoch.
    device : str, default "auto"
        "cpu", "cuda", "mps", "xpu", …; "auto" is a CUDA device if there is one.
    verbose : bool, default False
        Show progress on standard error.
    random_state : int, default 0
        The seed. The same seed, data and number of threads give the same weights, bit for bit.

    Examples
    --------
    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> ranker = tr.Ranker(objective="AP", epochs=1, random_state=0).fit(data)
    >>> ranker.predict(data).shape
    (3029,)
    """

    kind: ClassVar[str] = "net"

    def __init__(
        self,
        objective: str | Callable[..., Any] = "nDCG",
        strategy: str = "type3",
        alpha: float = 1.0,
        perturbation: float | str = "auto",
        samples: int | str = "auto",
        architecture: Any = "auto",
        ensemble_size: int | str = "auto",
        mode: str = "default",
        transforms: str | Sequence[str] = "auto",
        feature_noise: float | str = "auto",
        categorical_features: Sequence[int | str] | None = None,
        epochs: int | str = "auto",
        batch_documents: int | str = "auto",
        shuffle: bool | str = "auto",
        learning_rate: float | str = "auto",
        optimiser: str = "adam",
        weight_decay: float | str = "auto",
        schedule: str = "auto",
        halve_every: int = 20,
        clip: float | None = None,
        precision: str = "full",
        pretrain_epochs: int = 20,
        pretrain_corruption: float = 0.3,
        teacher_weight: float = 0.5,
        validation_measure: str | Measure = "nDCG@5",
        validate_every: int | str = "auto",
        select: str | None = None,
        early_stopping: int | str | None = "auto",
        tolerance: float | str = "auto",
        device: str = "auto",
        verbose: bool = False,
        random_state: int = 0,
    ) -> None:
        self.objective = objective
        self.strategy = strategy
        self.alpha = alpha
        self.perturbation = perturbation
        self.samples = samples
        self.architecture = architecture
        self.ensemble_size = ensemble_size
        self.mode = mode
        self.transforms = transforms
        self.feature_noise = feature_noise
        self.categorical_features = categorical_features
        self.epochs = epochs
        self.batch_documents = batch_documents
        self.shuffle = shuffle
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.halve_every = halve_every
        self.clip = clip
        self.precision = precision
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_corruption = pretrain_corruption
        self.teacher_weight = teacher_weight
        self.validation_measure = validation_measure
        self.validate_every = validate_every
        self.select = select
        self.early_stopping = early_stopping
        self.tolerance = tolerance
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_qid: Any = None,
        eval_group: Any = None,
        eval_fraction: float | None = None,
        callbacks: Sequence[Callback] = (),
        run: str | os.PathLike[str] | Run | None = None,
        resume: bool = False,
        init_model: Any = None,
        calibrate: Any = None,
        current: Any = None,
        unlabelled: Any = None,
        teacher: Any = None,
    ) -> Self:
        """Train on features, labels and queries, or on a Dataset.

        Queries with a single document, nothing relevant or weight 0 are ignored in training.

        Parameters
        ----------
        X, y, qid, group, sample_weight
            The training data, as in `BoostedRanker.fit`.
        eval_set, eval_qid, eval_group, eval_fraction
            Evaluation sets, as in `BoostedRanker.fit`.
        callbacks, run, resume
            As in `BoostedRanker.fit`.
        init_model : fitted Ranker, or path of a saved one, optional
            Start from its weights, as in `BoostedRanker.fit`.
        calibrate : str or dict, optional
            Learn on the evaluation set what scores mean, as in `BoostedRanker.fit`.
        current : fitted ranker, path of a saved one, or array, optional
            The current ranker of constraints such as "… subject to nDCG@10 >= current - 0.002";
            or its scores, one per row of the evaluation set, by name if there are several sets.
        unlabelled : Dataset, (X, qid) or (X, y, qid), optional
            Lists with the same features, for contrastive pre-training of the hidden layers (Hou et
            al. 2023). Labels in it are ignored. The transforms are fitted on the training data.
        teacher : fitted ranker, path of a saved one, or array of shape (n_documents,), optional
            A model, or its scores of the rows of X, that the net also learns from; see
            `teacher_weight`.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If parameters or data cannot be used.
        """
        call = FitArguments(
            X, y, qid, group, sample_weight, eval_set, eval_qid, eval_group, eval_fraction,
            callbacks, run, resume, init_model, calibrate, current, unlabelled, teacher,
        )  # fmt: skip
        return self._fit(call)

    def partial_fit(
        self, X: Any, y: Any = None, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> Self:
        """Continue training from the fitted weights, for `epochs` epochs.

        The first call is a `fit`. The transform stays as fitted. Each call has a new optimiser,
        history and random numbers, by `random_state` and `partial_fits_`.

        Parameters
        ----------
        X, y, qid, group, sample_weight
            As in `fit`.

        Returns
        -------
        self
        """
        previous = getattr(self, "model_", None)
        known = KnownColumns(named_columns(self))
        known = known if previous is None else self._known_columns()
        data, weights = labelled(X, y, qid, group, sample_weight, known)
        if previous is None:
            self._train(TrainingSet(data, weights), {})
            return self
        train = TrainingSet(self._matched(data), weights)
        self._train(train, {}, previous=previous)
        return self

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """The importance of each feature in training queries; the sum is 1.

        See `gradient_importances`. `fit` computes it on up to 4,000 documents. Models that were
        saved by older versions do not have it.
        """
        self._check_fitted()
        if self.model_.importances is None:
            raise AttributeError(
                "This model was saved without importances: call gradient_importances(X, qid), or "
                "twinrank.permutation_importances."
            )
        return np.array(self.model_.importances)

    def gradient_importances(
        self, X: Any, qid: Any = None, group: Any = None
    ) -> npt.NDArray[np.float64]:
        """The share of each feature in the mean absolute attribution.

        Parameters
        ----------
        X, qid, group
            As in `predict`; queries are needed.

        Returns
        -------
        array of float, shape (n_features,)
            At least 0; the sum is 1.
        """
        from twinrank.learning.models.gradients import importances

        data = as_dataset(X, qid=qid, group=group, known=self._known_columns())
        return importances(self.model_, self._explained(data))

    def attributions(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.float64]:
        """What each feature adds to each score, compared with the mean of the query.

        The attribution of a feature is ∂score/∂x · (x − mean of x in the query), with x after the
        transforms: to first order, the attributions of a document add up to its score minus the
        score of an average document. A category is compared with an unknown one.

        Parameters
        ----------
        X, qid, group
            As in `predict`; queries are needed.

        Returns
        -------
        array of float, shape (n_documents, n_features)
            One row per document, in the order of the rows.
        """
        from twinrank.learning.models.gradients import attributions

        data = as_dataset(X, qid=qid, group=group, known=self._known_columns())
        values = attributions(self.model_, self._explained(data))
        return values if data is X else np.asarray(data.in_source_order(values))

    def _pair_contributions(self, data: Dataset, a: int, b: int) -> npt.NDArray[np.float64]:
        """Integrated gradients from the features of b to those of a."""
        from twinrank.learning.models.gradients import pair_attributions

        return pair_attributions(self.model_, self._explained(data), a, b)

    def _explained(self, data: Dataset) -> Dataset:
        """The data with the model's features and codes."""
        self._check_fitted()
        data = self._matched(data)
        self._check_values(data, self.model_)
        encoded: Dataset = self.model_.encoding(data)
        return encoded

    @property
    def partial_fits_(self) -> int:
        """How often `partial_fit`, or `fit` with `init_model`, continued from a fitted model."""
        return int(self.model_.continuations)

    def _check_values(
        self, data: Dataset, model: Model | None, categorical: tuple[int, ...] = ()
    ) -> None:
        """Refuse values that are not finite after the transforms."""
        if model is None:
            check_values(data, self._transform(), categorical)
        else:
            check_values(data, model.transform, model.net.categories)  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(InputError):  # parameters are only checked by fit
            tags.input_tags.allow_nan = not self._transform().keeps_missing
        return tags

    def _transform(self) -> Transform:
        """The transform, not fitted."""
        names = ("mode", "architecture", "ensemble_size", "transforms", "feature_noise")
        parameters = {name: getattr(self, name) for name in names}
        return transform(learner_class(self.kind).resolve(parameters, 0)["transforms"])
