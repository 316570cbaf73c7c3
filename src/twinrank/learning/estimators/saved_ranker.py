"""`load_model`: read a fitted ranker of any kind from a folder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.learning.models.kinds import class_of
from twinrank.learning.models.saved_model import read_model

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker


def estimator_class(kind: str) -> type["BaseRanker"]:
    """The estimator of a kind, by its name in `KINDS`."""
    estimator: type[BaseRanker] = class_of(kind, "estimator")
    return estimator


def load_model(folder: str | os.PathLike[str], architecture: Any = None) -> "BaseRanker":
    """Read a fitted ranker of any kind from a folder that `save` or `twinrank train` wrote.

    Loading executes no code from the folder. If the net is your own, pass it.

    Parameters
    ----------
    folder : path
        The folder of a model or of a run.
    architecture : torch.nn.Module, callable or str, optional
        Your own net, as in the constructor of `Ranker`, if the model was trained with one.

    Returns
    -------
    Ranker, BoostedRanker or Blend
        With the saved parameters, `history_`, `best_iteration_` and `best_score_`.

    Raises
    ------
    InputError
        If the folder holds no model, or a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> import twinrank as tr
    >>> trees = tr.BoostedRanker(n_estimators=2).fit(tr.synthetic_web_search(queries=20))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trees.save(f"{folder}/model")
    ...     type(tr.load_model(f"{folder}/model")).__name__
    'BoostedRanker'
    """
    path = Path(folder).expanduser()
    model = read_model(path, architecture)
    own = {} if architecture is None else {"architecture": architecture}
    return estimator_class(model.kind)._from_model(model, path, **own)
