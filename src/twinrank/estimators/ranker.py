"""`Ranker`: a neural ranker that is trained on the measure it is judged by."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import transform
from twinrank.estimators.base import BaseRanker, labelled
from twinrank.estimators.checks import check_evaluation, check_values, keeps_missing, usable
from twinrank.estimators.plain import checked_parameters, saved_parameters
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.models.folder import Model

_SCORED = 12_000  # documents that are scored together at least, as in training


class Ranker(BaseRanker):
    """A feed-forward ranker with scikit-learn's face.

    `objective` is a measure ("nDCG", "AP", "P@5", …), which is then optimised itself, through the
    gradient `strategy` with steepness `alpha`, on ranks perturbed by `perturbation` and averaged
    over `samples`; or a loss by name ("ListNet", "ApproxNDCG(alpha=5)", …); or any callable
    (scores, labels, lists). `architecture` is one of the paper's ("R5", "CE5", "R4.L", "CE4.L"),
    "Small", which is "MLP(width=64, depth=3, dropout=0.3)", any other such MLP, or "Linear". With
    "Small(members=5)" five nets are trained apart, each kept as it was in its own best epoch, and
    the mean of their scores ranks; on up to 100,000 documents that is the default.

    `mode="paper"` takes the paper's settings: batch norm has the statistics of the query at hand,
    and a parameter that is "auto" is what its mode has. A value of your own always stands.

    | "auto"            | default                            | paper                            |
    |-------------------|------------------------------------|----------------------------------|
    | `perturbation`    | 2                                  | 0                                |
    | `samples`         | 5                                  | 1                                |
    | `architecture`    | Small(members=5), or Small         | CE4.L                            |
    | `batch_documents` | a 50th of the data, 500 to 12,000  | 1, so that a step is one query   |
    | `learning_rate`   | 3e-3                               | 1e-3                             |
    | `shuffle`         | True                               | False                            |
    | `weight_decay`    | 0                                  | 1e-3                             |
    | `schedule`        | constant                           | halve (every `halve_every` = 20) |
    | `validate_every`  | 1                                  | 2                                |
    | `early_stopping`  | 10                                 | None: all epochs, the best kept  |

    `schedule` is "constant", "halve" or "cosine"; `optimiser` "adam" or "sgd", with coupled
    `weight_decay`, or "adamw". The evaluation set called `select` chooses the best epoch; None is
    "validation", or else the first. `precision="mixed"` is for GPUs: the net is trained in bfloat16
    where that is safe.

    A label is a number from 0 on, or −1, unjudged, which counts as 0. Missing features (NaN) are
    what `transforms` make of them: the mean with QueryZScore and Standardise, the least value with
    QueryMinMax, an error where no statistics are taken. `random_state` is a whole number: the same
    one gives the same weights, bit for bit, for the same number of threads.

    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> ranker = tr.Ranker(objective="AP", epochs=1, random_state=0).fit(data)
    >>> ranker.predict(data).shape
    (3029,)
    """

    def __init__(
        self,
        objective: str | Callable[..., Any] = "nDCG",
        strategy: str = "type3",
        alpha: float = 1.0,
        perturbation: float | str = "auto",
        samples: int | str = "auto",
        architecture: str = "auto",
        mode: str = "default",
        transforms: str | Sequence[str] = "QueryZScore",
        categories: dict[int, int] | None = None,
        epochs: int = 100,
        batch_documents: int | str = "auto",
        shuffle: bool | str = "auto",
        learning_rate: float | str = "auto",
        optimiser: str = "adam",
        weight_decay: float | str = "auto",
        schedule: str = "auto",
        halve_every: int = 20,
        clip: float | None = None,
        precision: str = "full",
        validation_measure: str = "nDCG@5",
        validate_every: int | str = "auto",
        select: str | None = None,
        early_stopping: int | str | None = "auto",
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
        self.mode = mode
        self.transforms = transforms
        self.categories = categories
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
        self.validation_measure = validation_measure
        self.validate_every = validate_every
        self.select = select
        self.early_stopping = early_stopping
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def partial_fit(
        self, X: Any, y: Any = None, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on from the weights at hand, for `epochs` epochs, with the transform as fitted.

        The first call is a `fit`. The optimiser and the history begin anew with every call, and
        every call has its own random numbers, by `random_state` and `partial_fits_`.
        """
        data, weights = labelled(X, y, qid, group, sample_weight)
        before = getattr(self, "model_", None)
        if before is not None:
            self._check(data)
        self._train(data, weights, {}, (), before)
        return self

    @property
    def partial_fits_(self) -> int:
        """How often `partial_fit` went on from the fitted model."""
        count = self.model_.provenance.get("partial_fits")
        return count if isinstance(count, int) and count > 0 else 0

    def _train(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Any],
        before: "Model | None" = None,
    ) -> None:
        from twinrank.training.reporting import reporter
        from twinrank.training.session import Session

        own = {name: getattr(self, name) for name in Ranker._get_param_names()}
        parameters = checked_parameters(own)
        learnt, used = usable(data, weights)
        chosen = transform(parameters["transforms"]) if before is None else before.transform
        check_values(learnt, chosen, parameters["categories"])
        check_evaluation(sets, data, type(self).__name__)
        for one in sets.values():
            check_values(one, chosen, parameters["categories"])
        planned, calls = parameters, 0
        if before is not None:
            before = replace(before, scorer=deepcopy(before.scorer))  # a failure leaves the model
            planned = {**parameters, "select": None}  # without evaluation sets, nothing does
            calls = self.partial_fits_ + 1
        told = [*(reporter() if self.verbose else ()), *callbacks]
        result = Session(planned, before, calls).train(learnt, used, sets, told)
        names = data.feature_names
        if names is None and before is not None:
            names = before.feature_names
        saved = {"parameters": saved_parameters(parameters), "partial_fits": calls}
        provenance = {**result.model.provenance, **saved}
        self._adopt(replace(result.model, feature_names=names, provenance=provenance))
        self.history_ = result.history
        best = result.best
        self.best_epoch_ = None if best is None else best.epoch
        self.best_score_ = None if best is None else best.value

    def _scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        model: Model = self.model_
        check_values(data, model.transform, model.scorer.categories)
        asked = _SCORED if self.batch_documents == "auto" else int(self.batch_documents)
        return model.score(data, max(asked, _SCORED))

    def _write(self, folder: Path) -> None:
        from twinrank.models.folder import save_model

        save_model(self.model_, folder)

    @classmethod
    def _read(cls, folder: Path) -> "Model":
        from twinrank.models.folder import load_model

        return load_model(folder)

    def _export(self, path: Path) -> None:
        from twinrank.models.onnx_export import export_onnx

        export_onnx(self.model_, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(InputError):  # parameters are checked by fit only
            tags.input_tags.allow_nan = not keeps_missing(transform(self.transforms))
        return tags
