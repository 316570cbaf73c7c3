"""Methods by name: an objective, a strategy and a model, `AP-type3 (CE4.L)`."""

import re
from dataclasses import dataclass
from typing import Any

from twinrank.measures import measure
from twinrank.models.architecture import architecture
from twinrank.ranks.strategies import as_strategy
from twinrank.support.errors import InputError

_NAME = re.compile(
    r"\s*(?P<objective>.+?)-(?P<strategy>type\w*)\s*(?:\((?P<architecture>.+)\))?\s*"
)


@dataclass(frozen=True)
class Method:
    """What is trained: an objective through a strategy, on an architecture."""

    objective: str
    strategy: str = "type3"
    architecture: str = "CE4.L"

    def __str__(self) -> str:
        return f"{self.objective}-{self.strategy} ({self.architecture})"

    def parameters(self) -> dict[str, Any]:
        """The parameters of the `Ranker` that it is."""
        return {
            "objective": self.objective,
            "strategy": self.strategy,
            "architecture": self.architecture,
        }


def method(name: "str | Method") -> Method:
    """The method of this name; the architecture may be left out.

    >>> str(method("AP-type2"))
    'AP-type2 (CE4.L)'
    >>> method("nDCG@10-type3 (Linear)")
    Method(objective='nDCG@10', strategy='type3', architecture='Linear')
    """
    if isinstance(name, Method):
        return name
    match = _NAME.fullmatch(str(name))
    if match is None:
        raise InputError(
            f"can't read the method {name!r}; write objective-strategy (architecture), "
            f"such as AP-type3 or nDCG-type2 (R4.L)"
        )
    found = Method(match["objective"], match["strategy"], match["architecture"] or "CE4.L")
    measure(found.objective)
    as_strategy(found.strategy)
    architecture(found.architecture)
    return found
