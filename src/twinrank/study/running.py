"""A study: methods × folds × seeds, each unit trained once, kept at once, here or on a cluster."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from twinrank.measures import measure
from twinrank.study.dispatch import run_units
from twinrank.study.methods import method
from twinrank.study.progress import watching
from twinrank.study.results import SETTINGS, Results, read_unit
from twinrank.study.source import Source, forget
from twinrank.study.units import PROTOCOL, Unit
from twinrank.support.errors import InputError, explained
from twinrank.support.files import check_format, read_json, replacing

MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP", "nERR@10")
_FORMAT, _VERSION = "twinrank-study", 1


@dataclass(frozen=True)
class Study:
    """Methods that are trained on the same folds with the same seeds, and measured alike.

    `parameters` are those of the estimators by method; what isn't there is the estimator's default.
    `watch` names the parts of a fold that are measured every epoch: "validation", and for curves
    "train" and "test" as well.

    >>> study = Study(Source(queries=30, cut=3), ["AP-type3", "LambdaMART"], seeds=(0, 1))
    >>> len(study.units())
    12
    """

    source: Source
    methods: Sequence[str]
    folds: Sequence[int] | None = None
    """Their numbers; None for all that the source has."""
    seeds: Sequence[int] = (0,)
    measures: Sequence[str] = MEASURES
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    validation_measure: str = "nDCG@5"
    watch: Sequence[str] = ("validation",)
    kind: str = "comparison"
    """What it is made for: other kinds of study get a folder of their own."""

    def __post_init__(self) -> None:
        if not self.methods or not self.seeds or not self.measures:
            raise InputError("a study needs a method, a seed and a measure, at least")
        if len(set(self.method_names)) < len(self.methods):
            raise InputError(f"a method is named twice: {', '.join(self.method_names)}")
        for name in (*self.measures, self.validation_measure):
            measure(name)
        if unused := [m for m in self._parameters if m not in self.method_names]:
            raise InputError(f"parameters for {unused[0]}, which isn't among the methods")

    @cached_property
    def method_names(self) -> list[str]:
        """The methods, spelt in full."""
        return [str(method(name)) for name in self.methods]

    @cached_property
    def chosen_folds(self) -> tuple[int, ...]:
        """The numbers of the folds."""
        return self.source.check(None if self.folds is None else tuple(self.folds))

    @cached_property
    def _parameters(self) -> dict[str, Mapping[str, Any]]:
        return {str(method(name)): given for name, given in self.parameters.items()}

    def units(self) -> list[Unit]:
        """All units, by fold, then method, then seed."""
        return self._units

    @cached_property
    def _units(self) -> list[Unit]:
        shared = {"validation_measure": self.validation_measure}
        own = {name: {**shared, **self._parameters.get(name, {})} for name in self.method_names}
        return [
            Unit.of(name, fold, seed, self.source, own[name], self.watch)
            for fold in self.chosen_folds
            for name in self.method_names
            for seed in self.seeds
        ]

    def run(
        self,
        out: str | os.PathLike[str],
        jobs: int | None = None,
        ray: str | None = None,
        progress: bool = True,
        force: bool = False,
    ) -> Results:
        """Train the units that aren't in the folder `out` yet; each is kept as soon as it is done.

        `jobs` units are trained at a time, by default one per core; `ray` is the address of a Ray
        cluster ("auto", "local", "ray://…") that trains them instead, and whose machines all see
        `out` and the data. What fails is in the results' `failures`, and is tried again the next
        time. `progress=False` says nothing on standard error. A folder that holds something else
        is refused, unless `force`.
        """
        folder = Path(out).expanduser().absolute()
        forget()
        units = self.units()
        self._claim(folder, force)
        lacking = [unit for unit in units if read_unit(folder, unit) is None]
        with watching(folder, units, lacking, progress):
            run_units(lacking, self.source, folder, jobs, ray)
        return Results(self, folder)

    def to_json(self) -> dict[str, Any]:
        """The settings, with the fingerprint of every fold's data."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "protocol": PROTOCOL,
            "kind": self.kind,
            "source": json.loads(self.source.to_text()),
            "data": {str(fold): self.source.fingerprint(fold) for fold in self.chosen_folds},
            "methods": self.method_names,
            "folds": list(self.chosen_folds),
            "seeds": list(self.seeds),
            "measures": list(self.measures),
            "validation_measure": self.validation_measure,
            "watch": list(self.watch),
            "parameters": {u.method: dict(u.parameters) for u in self.units()},
        }

    def _claim(self, folder: Path, force: bool) -> None:
        """Write the settings; a folder of another study is left alone unless forced."""
        path = folder / SETTINGS
        with explained("write", folder):
            if folder.exists() and not force:
                self._check_folder(folder, path)
            folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            text = json.dumps(self.to_json(), indent=1, ensure_ascii=False)
            partial.write_text(text + "\n", "utf-8")

    def _check_folder(self, folder: Path, path: Path) -> None:
        way_out = "choose another --out, or --force to put these results there, too"
        if not path.is_file():
            if any(folder.iterdir()):
                raise InputError(f"{folder} isn't empty, and not the folder of a study; {way_out}")
            return
        there = check_format(read_json(path), path, _FORMAT, _VERSION, "that of a study")
        if there.get("kind") != self.kind:
            raise InputError(f"{folder} holds a {there.get('kind')}, not a {self.kind}; {way_out}")
        here = self.to_json()
        before = there.get("data")
        if not isinstance(before, dict):
            raise InputError(f"{path} is damaged: it doesn't say what data it is about; {way_out}")
        common = here["data"].keys() & before.keys()
        same = all(here["data"][fold] == before[fold] for fold in common)
        if not same or not (common or there.get("source") == here["source"]):
            raise InputError(f"{folder} holds results on other data; {way_out}")
