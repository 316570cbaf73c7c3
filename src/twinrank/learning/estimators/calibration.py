"""Calibration of fitted rankers: maps from scores to grades and probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.learning.estimators.out_of_fold import out_of_fold_scores
from twinrank.learning.models.saved_model import RUN_MODEL, save_model
from twinrank.learning.models.score_map import TARGETS, ScoreMap, check_labels, fit_map
from twinrank.learning.training.fit_arguments import labelled
from twinrank.learning.training.run_folder import Run
from twinrank.learning.training.validation import selecting_set
from twinrank.support.errors import Argument, InputError, check_number
from twinrank.support.notation import check_options, parse


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """What `calibrate` learns, in the notation `probability(relevant=2, query_features=true)`."""

    target: str = "probability"
    relevant: float = 1.0
    query_features: bool = False

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise InputError(argument="target", value=self.target, choices=TARGETS)
        check_number("relevant", self.relevant)
        if not isinstance(self.query_features, bool | np.bool_):
            raise InputError(Argument("query_features"), " must be True or False.")

    @classmethod
    def of(cls, value: Any) -> "CalibrationOptions | None":
        """The argument `calibrate` of `fit`: None, a target, a notation, or options by name."""
        if value is None or isinstance(value, CalibrationOptions):
            return value
        known = [own.name for own in fields(cls)]
        if isinstance(value, Mapping):
            for name in value:
                if name not in known:
                    raise InputError(argument="calibrate", value=name, choices=known)
            return cls(**value)
        if not isinstance(value, str):
            raise InputError(
                Argument("calibrate"), f" must be 'grade' or 'probability', not {value!r}."
            )
        term = parse(value)
        if term.name not in TARGETS or term.cutoff is not None:
            raise InputError(argument="calibrate", value=value, choices=TARGETS)
        check_options(term.name, term, [name for name in known if name != "target"])
        return cls(target=term.name, **term.options)  # type: ignore[arg-type]


class Calibration:
    """What fitted rankers inherit: `calibrate`, and the values that it makes of scores."""

    model_: Any
    best_score_: float | None
    select: str | None

    def calibrate(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        *,
        target: str = "probability",
        relevant: float = 1.0,
        query_features: bool = False,
        cross_fit: int | None = None,
        random_state: int = 0,
    ) -> Self:
        """Learn what scores mean: the expected grade, or the probability of relevance.

        `predict(…, output=target)` then returns these values. The map from scores to values is
        strictly increasing: two documents keep their order, and different scores stay different.
        Ranking and measures use the score as before. A ranker can learn both targets.

        Parameters
        ----------
        X, y, qid, group, sample_weight
            Judged queries on which the ranker was not trained, as in `fit`; those that selected
            its iteration will do. Unjudged documents do not count.
        target : {"probability", "grade"}, default "probability"
            The probability that the label is at least `relevant`, or the expected label.
        relevant : float, default 1
            The lowest label that counts as relevant.
        query_features : bool, default False
            Shift the scores of a query by its number of documents and by the mean, deviation and
            maximum of its scores, so that easy and hard queries differ. All documents of a query
            must then be predicted together.
        cross_fit : int, optional
            The data is what the ranker was trained on: train as many rankers, each without one
            part of the queries, and learn from their scores of the parts that they did not see.
        random_state : int, default 0
            The seed of the parts.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If all documents are relevant, or none, or there are fewer than 20.

        Examples
        --------
        >>> import twinrank as tr
        >>> train, validation, test = tr.synthetic_web_search(queries=90).split(0.6, 0.2)
        >>> ranker = tr.BoostedRanker(n_estimators=10).fit(train).calibrate(validation)
        >>> p = ranker.predict(test, output="probability")
        >>> bool(((0 < p) & (p < 1)).all())
        True
        """
        options = CalibrationOptions(
            target=target, relevant=relevant, query_features=query_features
        )
        data, weights = labelled(X, y, qid, group, sample_weight, self._known_columns())  # type: ignore[attr-defined]
        if cross_fit is None:
            scores = self._scores(data)  # type: ignore[attr-defined]
        else:
            more = ("cross_fit", cross_fit, random_state, weights)
            scores = out_of_fold_scores(self, data, *more)
        self._calibrate(scores, data, weights, options)
        return self

    def _calibrate(
        self, scores: Any, data: Dataset, weights: Any, options: CalibrationOptions
    ) -> None:
        """Fit a map and keep it in the model; one for another target stays."""
        _check_source(data, options)
        learned = fit_map(
            scores,
            data.y,
            data.lists,
            options.target,
            relevant=options.relevant,
            weights=_row_weights(data, weights),
            query_features=options.query_features,
        )
        maps = {**self.model_.calibration, options.target: learned}
        self.model_ = replace(self.model_, calibration=maps)

    def _check_calibration(self, sets: Mapping[str, Dataset], options: CalibrationOptions) -> None:
        """Raise InputError before a training whose evaluation set cannot calibrate its model."""
        if not sets:
            raise InputError(
                Argument("calibrate"),
                " needs queries that are not trained on: pass eval_set or eval_fraction.",
            )
        data = self._calibration_set(sets)
        _check_source(data, options)
        check_labels(data.y, options.target, options.relevant, _row_weights(data, data.weights))

    def _calibration_set(self, sets: Mapping[str, Dataset]) -> Dataset:
        """The set that selects the iteration."""
        return sets[str(selecting_set(self.select, sets))]

    def _calibrate_fitted(
        self, sets: Mapping[str, Dataset], options: CalibrationOptions, run: Run | None
    ) -> None:
        """Calibrate on the set that selected the iteration, and save the model of a run again."""
        data = self._calibration_set(sets)
        self._calibrate(self._scores(data), data, data.weights, options)  # type: ignore[attr-defined]
        if run is not None and run.group.is_main:
            save_model(self.model_, run.folder / RUN_MODEL)

    def _calibration(self, output: str, argument: str = "output") -> ScoreMap | None:
        """The map of an output of `predict`; None for scores. `argument` is its name in errors."""
        if output == "score":
            return None
        if output not in TARGETS:
            raise InputError(argument=argument, value=output, choices=["score", *TARGETS])
        self._check_fitted()  # type: ignore[attr-defined]
        maps: Mapping[str, ScoreMap] = self.model_.calibration
        if output not in maps:
            known = f" for {output}, only for {' and '.join(maps)}" if maps else ""
            raise InputError(
                f"The model is not calibrated{known}. Call ranker.calibrate(data, "
                f"target={output!r}) with judged queries, or run twinrank calibrate MODEL DATA "
                f"--target {output}."
            )
        return maps[output]


def _row_weights(data: Dataset, weights: Any) -> Any:
    """The weight of each document, given those of queries."""
    if data.row_weights is not None or weights is None:
        return data.row_weights
    return data.lists.spread(np.asarray(weights))


def _check_source(data: Dataset, options: CalibrationOptions) -> None:
    """Refuse probabilities from clicks."""
    if data.from_clicks and options.target == "probability":
        raise InputError(
            "Labels estimated from clicks say nothing about the probability of relevance: "
            "calibrate for the target grade."
        )
