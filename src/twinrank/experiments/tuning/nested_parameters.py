"""Values searched within a parameter: `architecture` of nets and `engine_params` of trees.

Each kind of model has one class here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from twinrank.experiments.study.methods import NET, TREES
from twinrank.learning.models.architecture import Architecture, architecture
from twinrank.support.errors import InputError
from twinrank.support.notation import Term


@dataclass(frozen=True)
class EngineParameters:
    """Parameters of LightGBM that a ranker does not have itself, with their defaults."""

    min_data_in_leaf: int = 20
    lambda_l2: float = 0.0


class NestedParameters(ABC):
    """The values that a search combines into one parameter of an estimator."""

    schema: type
    """A dataclass with a field for each value."""

    @property
    def names(self) -> list[str]:
        """The names of the values."""
        return [value.name for value in fields(self.schema)]

    @abstractmethod
    def excluded(self, fixed: Mapping[str, Any], searched: Mapping[str, Any]) -> bool:
        """True if fixed or searched parameters leave no place for the values."""

    @abstractmethod
    def conflict(self, name: str) -> InputError:
        """The error if a value is set although the values are excluded."""

    @abstractmethod
    def combine(self, values: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameter that contains the values."""

    @abstractmethod
    def model(self, parameters: Mapping[str, Any]) -> str:
        """The model in the name of the method with these parameters."""


class ArchitectureParameters(NestedParameters):
    """The values of a net's `architecture`."""

    schema = Architecture

    def excluded(self, fixed: Mapping[str, Any], searched: Mapping[str, Any]) -> bool:
        """True if the architecture is given as a whole."""
        return "architecture" in {*fixed, *searched}

    def conflict(self, name: str) -> InputError:
        """The error that the value belongs in the architecture."""
        return InputError(f"{name} is part of the architecture: pass architecture=MLP({name}=…).")

    def combine(self, values: dict[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
        """The architecture."""
        return {"architecture": str(Term("MLP", values))}

    def model(self, parameters: Mapping[str, Any]) -> str:
        """The checked name of the architecture."""
        architecture(parameters["architecture"])
        return str(parameters["architecture"])


class BoosterParameters(NestedParameters):
    """The values of `engine_params` of trees."""

    schema = EngineParameters

    def excluded(self, fixed: Mapping[str, Any], searched: Mapping[str, Any]) -> bool:
        """True if the engine may be another one than LightGBM."""
        return "engine" in searched or fixed.get("engine", "lightgbm") != "lightgbm"

    def conflict(self, name: str) -> InputError:
        """The error that only LightGBM has the value."""
        return InputError(f"Only LightGBM has {name}: fix engine=lightgbm.")

    def combine(self, values: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the engine; those that are fixed take precedence."""
        return {"engine_params": {**values, **(parameters.get("engine_params") or {})}}

    def model(self, parameters: Mapping[str, Any]) -> str:
        """Boosted trees with their engine."""
        return str(Term("Boosted", {"engine": parameters.get("engine", "lightgbm")}))


NESTED: dict[str, NestedParameters] = {
    NET.name: ArchitectureParameters(),
    TREES.name: BoosterParameters(),
}
