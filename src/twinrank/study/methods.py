"""Methods by name: objective, strategy and model, `AP-type3 (CE4.L)`; baselines by theirs."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinrank.boosting.engines import ENGINES
from twinrank.boosting.session import OWN
from twinrank.measures import measure
from twinrank.models.architecture import architecture
from twinrank.ranks.strategies import as_strategy
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import Term, check_options, parse

if TYPE_CHECKING:
    from twinrank.estimators.base import BaseRanker

_DIRECT = re.compile(r"(?P<objective>.+?)-(?P<strategy>type\w*|swap)\s*(?:\((?P<model>.+)\))?")
_NAMED = re.compile(r"(?P<objective>[\w:]+(?:\([^()]*\))?)(?:\s+\((?P<model>.+)\))?")

_BOOSTED, _ENGINE, _NET = "Boosted", "lightgbm", "Small"
_EXAMPLES = (
    "write objective-strategy (model), such as AP-type3, nDCG-type2 (R4.L) or nDCG-type3 (Boosted)"
)


@dataclass(frozen=True)
class Method:
    """What is trained: an objective through a strategy, on a model.

    `strategy` is empty for objectives without one: baseline losses, and boosters' own objectives.
    `model` is the architecture of a net, or "Boosted", or "Boosted(engine=xgboost, members=5)".
    """

    objective: str
    strategy: str = "type3"
    model: str = _NET

    def __str__(self) -> str:
        if self.objective in OWN:
            xgboost = self._options.get("engine") == "xgboost"
            return f"{self.objective} (XGBoost)" if xgboost else self.objective
        name = f"{self.objective}-{self.strategy}" if self.strategy else self.objective
        return f"{name} ({self.model})"

    @property
    def boosted(self) -> bool:
        """Whether it is trees rather than a net."""
        return self.model.startswith(_BOOSTED)

    @property
    def estimator(self) -> "type[BaseRanker]":
        """The class that it is an instance of."""
        if self.boosted:
            from twinrank.estimators.boosted import BoostedRanker

            return BoostedRanker
        from twinrank.estimators.ranker import Ranker

        return Ranker

    def parameters(self) -> dict[str, Any]:
        """What makes the estimator this method."""
        found: dict[str, Any] = {"objective": self.objective}
        if self.strategy:
            found["strategy"] = self.strategy
        if not self.boosted:
            return found | {"architecture": self.model}
        return found | {"engine": _ENGINE} | self._options

    def has(self, parameter: str) -> bool:
        """Whether a parameter is one of this method's."""
        if parameter == "members" and self.objective in OWN:
            return False
        return parameter in self.estimator._get_param_names()

    @property
    def _options(self) -> dict[str, Any]:
        """What the name says of boosted trees."""
        return parse(self.model).options


def method(name: "str | Method") -> Method:
    """The method of this name; the model may be left out.

    >>> str(method("AP-type2"))
    'AP-type2 (Small)'
    >>> method("nDCG@10-type3 (Linear)")
    Method(objective='nDCG@10', strategy='type3', model='Linear')
    >>> method("LambdaMART")
    Method(objective='LambdaMART', strategy='', model='Boosted')
    """
    if isinstance(name, Method):
        return name
    text = str(name).strip()
    if (match := _DIRECT.fullmatch(text)) is not None:
        found = Method(match["objective"], match["strategy"], _model(match["model"]))
        measure(found.objective)
        as_strategy(found.strategy)
        return found
    match = _NAMED.fullmatch(text)
    if match is not None and match["objective"] in OWN:
        return _own(match["objective"], match["model"], text)
    if match is None or not _is_loss(match["objective"]):
        raise InputError(_unreadable(text))
    found = Method(match["objective"], "", _model(match["model"]))
    if found.boosted:
        raise InputError(f"{found.objective} is a loss for nets; trees take measures: {_EXAMPLES}")
    return found


def _model(name: str | None) -> str:
    """A net's architecture or boosted trees, checked."""
    if name is None:
        return _NET
    if not name.strip().startswith(_BOOSTED):
        architecture(name)
        return name
    term = parse(name.strip())
    if term.name != _BOOSTED or term.cutoff is not None:
        raise InputError(unknown("model", name, [_BOOSTED]))
    check_options(_BOOSTED, term, ["engine", "members"])
    engine = str(term.options.get("engine", _ENGINE))
    if engine not in ENGINES:
        raise InputError(unknown("engine", engine, ENGINES))
    members = term.options.get("members", 1)
    if not isinstance(members, int) or isinstance(members, bool) or members < 1:
        raise InputError(f"members must be a whole number from 1 on, not {members!r}")
    return _boosted(engine, members if "members" in term.options else None)


def _boosted(engine: str, members: int | None = None) -> str:
    options: dict[str, Any] = {} if engine == _ENGINE else {"engine": engine}
    return str(Term(_BOOSTED, options | ({} if members is None else {"members": members})))


def _own(objective: str, model: str | None, text: str) -> Method:
    """A booster's own objective, with or without the booster's name."""
    engine = OWN[objective][0]
    if model is not None and model.lower() != engine:
        raise InputError(f"can't read the method {text!r}: {objective} is always {engine}'s")
    return Method(objective, "", _boosted(engine))


def _is_loss(name: str) -> bool:
    from twinrank.losses import NAMES, loss

    if name.partition("(")[0] not in NAMES:
        return False
    loss(name)  # its options are right
    return True


def _unreadable(text: str) -> str:
    """What may have been meant: a baseline that is spelt alike, or else the forms of names."""
    from twinrank.losses import NAMES

    baselines = [*OWN, *NAMES]
    said = unknown("method", text.partition("(")[0].strip(), baselines)
    _, _, near = said.partition("Did you mean ")
    if near:
        return f"can't read the method {text!r}. Did you mean {near}"
    return f"can't read the method {text!r}; {_EXAMPLES}; or a baseline: {', '.join(baselines)}"
