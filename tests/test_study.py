"""Studies: units are trained once, kept at once, the same wherever they run, and pooled."""

import json
import multiprocessing
import os
import pickle
import re
import signal
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import twinrank as tr
from twinrank.experiments.study import study_folder
from twinrank.experiments.study.scheduler import Item, run_jobs, watching
from twinrank.experiments.study.study import Results, Study
from twinrank.experiments.study.study_folder import (
    StatusFile,
    UnitQueue,
    read_unit,
    run_unit,
    status_path,
    write_failure,
)
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import (
    Unit,
    full_parameters,
    one_thread,
    tied_pairs,
    train_unit,
)
from twinrank.support.locks import locked

SOURCE = Source(queries=24, cut=3)
NET, TREES = "AP-type3 (Linear)", "LambdaMART"
PARAMETERS = {NET: {"epochs": 2, "perturbation": 0.1}, TREES: {"n_estimators": 3, "num_leaves": 4}}


def small(**changes):
    given = {"methods": [NET, TREES], "parameters": PARAMETERS, "measures": ["nDCG@5", "AP"]}
    return Study(changes.pop("source", SOURCE), **{**given, **changes})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return small().run(tmp_path_factory.mktemp("study"), jobs=1, progress=False)


@pytest.fixture
def trained(monkeypatch):
    """The units that are trained in this process, as they come."""
    seen = []

    def train(unit, source, callbacks=()):
        seen.append(unit)
        return train_unit(unit, source, callbacks)

    monkeypatch.setattr(study_folder, "train_unit", train)
    return seen


def scores(results):
    return {str(one.unit): np.asarray(one.scores) for one in results.units}


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)


class TestSource:
    def test_cut_into_folds_by_query(self):
        tests = [SOURCE.sets(fold)["test"].query_ids for fold in SOURCE.folds]
        assert sorted(np.concatenate(tests)) == sorted(tr.synthetic_web_search(24).query_ids)
        for fold in SOURCE.folds:
            parts = [set(part.query_ids) for part in SOURCE.sets(fold).values()]
            assert not set.intersection(*parts)

    def test_one_split(self):
        sizes = [part.queries for part in Source(queries=20, cut=1).sets(1).values()]
        assert sizes == [12, 4, 4]

    @pytest.mark.parametrize("cut", [-1, 0, 2])
    def test_too_few_folds(self, cut):
        with pytest.raises(tr.InputError, match=f"cannot be cut into {cut} folds: choose 1"):
            Source(queries=20, cut=cut)

    def test_few_documents_are_left_out_everywhere(self):
        source = Source(queries=24, cut=3, min_documents=60, min_relevant=2)
        for part in source.sets(2).values():
            assert part.lists.sizes.min() >= 60
        assert source.fingerprint(1) != SOURCE.fingerprint(1)

    def test_processes_and_files_get_the_same_source(self, tmp_path):
        source = Source.of(tmp_path / "a.txt", {"cache_dir": tmp_path, "ignore": ("x",)}, cut=4)
        copies = (
            pickle.loads(pickle.dumps(source)),
            Source(**json.loads(json.dumps(asdict(source)))),
        )
        assert all(copy == source and hash(copy) == hash(source) for copy in copies)
        assert source.reading == {"cache_dir": str(tmp_path), "ignore": ["x"]}

    def test_fingerprints_are_of_the_content(self, tmp_path):
        data = tr.synthetic_web_search(12)
        data.save(tmp_path / "a.txt")
        data.save(tmp_path / "b.txt")
        data.select(slice(1, None)).save(tmp_path / "c.txt")
        a, b, c = (Source.of(tmp_path / f"{x}.txt", {}, cut=3).fingerprint(1) for x in "abc")
        assert a == b != c
        X = np.array(data.X)
        X[5, 7] += 1
        other = tr.Dataset.from_arrays(X, data.y, qid=data.qid)
        other.save(tmp_path / "d.txt")
        assert Source.of(tmp_path / "d.txt", {}, cut=3).fingerprint(1) != a

    @pytest.fixture
    def folder(self, tmp_path):
        parts = dict(
            zip(("train", "vali", "test"), tr.synthetic_web_search(9).split(0.3, 0.3), strict=True)
        )
        for number in (1, 2, 4):
            (tmp_path / f"Fold{number}").mkdir()
            for name, part in parts.items():
                part.save(tmp_path / f"Fold{number}" / f"{name}.txt")
        return tmp_path

    def test_missing_folds_are_named(self, folder):
        source = Source.of(folder, {})
        assert source.folds == (1, 2, 4)
        with pytest.raises(tr.InputError, match=r"fold 3 is missing; .*--folds 1,2,4"):
            source.check()
        with pytest.raises(tr.InputError, match=r"has 3 folds \(1, 2, 4\), but no fold 3, 7"):
            source.check((1, 3, 7))
        assert source.check((1, 4)) == (1, 4)
        (folder / "Fold2" / "test.txt").unlink()
        with pytest.raises(tr.InputError, match=r"Fold2 has no test file .*--folds 1,4"):
            Source.of(folder, {}).check()

    def test_folds_of_a_folder(self, folder):
        (folder / "Fold2" / "vali.txt").unlink()
        source = Source.of(folder, {})
        assert [part.queries for part in source.sets(1).values()] == [3, 2, 4]
        assert [part.queries for part in source.sets(2).values()] == [2, 1, 4]


class TestUnits:
    def test_all_that_matters_is_in_the_key(self):
        plain = Unit.of(NET, 1, 0, SOURCE)
        others = [
            Unit.of("AP-type2 (Linear)", 1, 0, SOURCE),
            Unit.of(NET, 2, 0, SOURCE),
            Unit.of(NET, 1, 1, SOURCE),
            Unit.of(NET, 1, 0, SOURCE, {"alpha": 2.0}),
            Unit.of(NET, 1, 0, SOURCE, {"validation_measure": "AP"}),
            Unit.of(NET, 1, 0, Source(queries=25, cut=3)),
            Unit.of(NET, 1, 0, SOURCE, watch=("train", "validation")),
        ]
        assert len({unit.key for unit in (plain, *others)}) == 8
        again = Unit.of("AP-type3 (Linear)", 1, 0, Source(queries=24, cut=3), {"alpha": 1.0})
        assert again.key == plain.key
        assert Unit(**json.loads(json.dumps(plain.to_json()))).key == plain.key

    @pytest.mark.parametrize(
        ("name", "parameters", "complaint"),
        [
            (NET, {"alhpa": 1}, "Did you mean 'alpha'"),
            (NET, {"epochs": 0}, "epochs"),
            (TREES, {"n_estimators": 0}, "n_estimators"),
            (TREES, {"epochs": 3}, "Unknown parameter of BoostedRanker"),
        ],
    )
    def test_wrong_parameters_are_known_before_training(self, name, parameters, complaint):
        with pytest.raises(tr.InputError, match=complaint):
            full_parameters(name, parameters)

    def test_ties(self):
        data = tr.synthetic_web_search(6)
        scores = np.random.default_rng(0).integers(0, 9, data.documents).astype(np.float32)
        tied = pairs = 0
        for start, stop in zip(data.lists.offsets[:-1], data.lists.offsets[1:], strict=True):
            above = np.triu(np.ones((stop - start,) * 2, bool), 1)
            tied += (scores[start:stop, None] == scores[None, start:stop])[above].sum()
            pairs += above.sum()
        assert tied_pairs(scores, data) == tied / pairs

    def test_what_is_watched_is_in_the_history(self):
        parts = ("train", "validation", "test")
        for name, parameters in PARAMETERS.items():
            found = train_unit(Unit.of(name, 1, 0, SOURCE, parameters, parts), SOURCE)
            assert all(set(parts) <= record.keys() for record in found.history)


class TestRunning:
    def test_units_are_what_the_estimators_give(self, results):
        sets = SOURCE.sets(2)
        alone = tr.BoostedRanker("LambdaMART", **PARAMETERS[TREES]).fit(
            sets["train"], eval_set=sets["validation"]
        )
        net = tr.Ranker("AP", architecture="Linear", **PARAMETERS[NET])
        with one_thread():
            net.fit(sets["train"], eval_set={"validation": sets["validation"]})
            assert np.array_equal(results.units_of(NET)[1].scores, net.predict(sets["test"]))
        found = results.units_of(TREES)[1]
        assert np.array_equal(found.scores, alone.predict(sets["test"]))
        assert found.best_iteration == alone.best_iteration_
        assert found.best_score == alone.best_score_
        assert 0 <= found.peak_memory_bytes < 500_000_000
        assert found.seconds > 0
        assert found.features == 136
        assert [record["iteration"] for record in found.history] == [1, 2, 3]
        assert [record["iteration"] for record in results.units_of(NET)[0].history] == [1, 2]

    def test_values_are_pooled_in_the_order_of_folds(self, results):
        found = results.evaluations()[TREES]
        parts = [
            tr.evaluate(one.scores, test.y, test.lists, ["AP"]).values["AP"]
            for one, test in zip(results.units_of(TREES), results.tests, strict=True)
        ]
        assert np.array_equal(found.values["AP"], np.concatenate(parts), equal_nan=True)
        assert found.lists == 24 == results.list_sizes.size == results.list_grades.size
        assert set(found.query_ids) == set(tr.synthetic_web_search(24).query_ids)
        test = results.tests[0]
        assert results.list_grades[0] == test.y[: test.lists.sizes[0]].max()
        assert results.comparison().measures == ["nDCG@5", "AP"]

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files on Linux")
    def test_no_file_stays_open(self, results):
        read = Results(results.study, results.out)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        units = read.units
        assert all(unit.scores.size for unit in units)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    def test_values_are_means_over_seeds(self, tmp_path):
        both = small(seeds=(0, 1), methods=[NET], parameters={NET: PARAMETERS[NET]}, folds=[1])
        found = both.run(tmp_path, jobs=1, progress=False).evaluations(["AP"])[NET]
        test = SOURCE.sets(1)["test"]
        each = [
            tr.evaluate(np.load(path), test.y, test.lists, ["AP"]).values["AP"]
            for path in sorted(tmp_path.glob("units/*/scores.npy"))
        ]
        assert len(each) == 2
        assert not np.array_equal(*each, equal_nan=True)
        assert np.allclose(found.values["AP"], np.mean(each, axis=0), equal_nan=True)

    def test_results_depend_neither_on_jobs_nor_on_threads(self, results, tmp_path):
        two = small().run(tmp_path, jobs=2, progress=False)
        assert not two.failures
        assert len(two.units) == 6
        assert same(scores(results), scores(two))

    @pytest.mark.slow
    def test_a_ray_cluster_gives_the_same_numbers(self, results, tmp_path):
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            found = small().run(tmp_path, jobs=2, ray="auto", progress=False)
        finally:
            ray.shutdown()
        assert not found.failures
        assert same(scores(results), scores(found))

    def test_finished_units_stay_and_only_what_changed_is_trained(self, tmp_path, trained):
        small().run(tmp_path, jobs=1, progress=False)
        assert len(trained) == 6
        small(measures=["nERR@10"]).run(tmp_path, jobs=1, progress=False)
        assert len(trained) == 6
        changed = {**PARAMETERS, TREES: {"n_estimators": 2}}
        small(parameters=changed).run(tmp_path, jobs=1, progress=False)
        assert [unit.method for unit in trained[6:]] == [TREES] * 3
        small().run(tmp_path, jobs=1, progress=False)  # and the former ones are still there
        assert len(trained) == 9

    def test_damaged_units_are_trained_again(self, tmp_path, trained):
        study = small(folds=[1])
        study.run(tmp_path, jobs=1, progress=False)
        first, second = study.units
        (tmp_path / "units" / first.key / "unit.json").write_text("{")
        (tmp_path / "units" / second.key / "scores.npy").write_bytes(b"\x93NUMPY")
        found = study.run(tmp_path, jobs=1, progress=False)
        assert len(trained) == 4
        assert len(found.units) == 2

    def test_a_failing_unit_stops_no_other(self, tmp_path, monkeypatch):
        def train(unit, source, callbacks=()):
            if unit.method == NET and unit.fold == 2:
                raise RuntimeError("a cosmic ray")
            return train_unit(unit, source, callbacks)

        with monkeypatch.context() as patch:
            patch.setattr(study_folder, "train_unit", train)
            found = small().run(tmp_path, jobs=1, progress=False)
        assert [str(one) for one in found.failures] == [
            f"{NET}, fold 2, seed 0: RuntimeError: a cosmic ray"
        ]
        assert "in train" in found.failures[0].traceback
        assert len(found.units) == 5
        assert found.methods == [TREES]
        assert list(found.evaluations()) == [TREES]
        again = small().run(tmp_path, jobs=1, progress=False)
        assert not again.failures
        assert again.methods == [NET, TREES]
        assert not list((tmp_path / "failures").iterdir())

    def test_nothing_complete_is_said_with_the_reason(self, tmp_path):
        study = small(methods=[NET], parameters={NET: {"epochs": 1, "device": "abacus"}})
        found = study.run(tmp_path, jobs=1, progress=False)
        with pytest.raises(tr.InputError, match="No method of this study is complete") as error:
            found.comparison()
        assert "There is no device 'abacus' here" in str(error.value)

    def test_stop_and_go_on(self, results, tmp_path, monkeypatch, trained):
        def train(unit, source, callbacks=()):
            if len(trained) == 3:
                raise KeyboardInterrupt
            trained.append(unit)
            return train_unit(unit, source, callbacks)

        with monkeypatch.context() as patch:
            patch.setattr(study_folder, "train_unit", train)
            with pytest.raises(KeyboardInterrupt):
                small().run(tmp_path, jobs=1, progress=False)
        assert not list((tmp_path / "running").iterdir())
        (tmp_path / "running" / "left-by-a-killed-process.json").write_text("{}")
        found = small().run(tmp_path, jobs=1, progress=False)
        assert len(trained) == 6 == len({unit.key for unit in trained})
        assert same(scores(results), scores(found))

    def test_units_with_the_old_names_of_fields_are_read(self, tmp_path):
        unit = next(u for u in small().units if u.fold == 1 and u.method == TREES)
        run_unit(unit, SOURCE, tmp_path)
        expected = read_unit(tmp_path, unit)
        path = tmp_path / "units" / unit.key / "unit.json"
        about = json.loads(path.read_text())
        about["best_epoch"] = about.pop("best_iteration")
        about["best_value"] = about.pop("best_score")
        path.write_text(json.dumps(about))
        result = read_unit(tmp_path, unit)
        assert result.best_iteration == expected.best_iteration is not None
        assert result.best_score == expected.best_score is not None

    @pytest.mark.slow
    def test_kill_and_go_on(self, tmp_path, trained):
        study = small(parameters={**PARAMETERS, NET: {"epochs": 100_000, "early_stopping": None}})
        units = [u for u in study.units if u.fold == 1]
        run_unit(units[1], SOURCE, tmp_path)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=run_unit, args=(units[0], SOURCE, tmp_path))
        process.start()
        status = tmp_path / "running" / f"{units[0].key}.json"
        for _ in range(1_000):
            time.sleep(0.05)
            if status.exists() and json.loads(status.read_text())["done"] > 0:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert status.exists()
        assert read_unit(tmp_path, units[0]) is None
        assert read_unit(tmp_path, units[1]) is not None
        del trained[:]
        found = small(folds=[1]).run(tmp_path, jobs=1, progress=False, force=True)
        assert [unit.method for unit in trained] == [NET]
        assert len(found.units) == 2
        assert not list((tmp_path / "running").iterdir())

    @pytest.mark.slow
    def test_a_process_that_dies_takes_no_other_unit_along(self, tmp_path, monkeypatch):
        study = small(folds=[1, 2])
        doomed = study.units[0].key

        def run(unit, source, out, leader):
            if unit.key == doomed:  # as running out of memory would end it
                StatusFile(Path(out) / "running" / f"{unit.key}.json", unit)
                os.kill(os.getpid(), signal.SIGKILL)
            run_unit(unit, source, out, leader)

        monkeypatch.setattr(study_folder, "run_unit", run)
        found = study.run(tmp_path, jobs=2, progress=False)
        assert [one.unit.key for one in found.failures] == [doomed]
        assert "died" in found.failures[0].error
        assert len(found.units) == 3


class Deadly:
    """Jobs that write a file each; the first one kills its process a given number of times."""

    def __init__(self, folder, count, deaths):
        self.folder, self.count, self.deaths, self.failed = folder, count, deaths, set()

    def job(self, number):
        folder, deaths = self.folder, self.deaths if number == 0 else 0

        def run(leader):
            died = len(list(folder.glob("death-*")))
            if died < deaths:
                (folder / f"death-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / f"done-{number}").write_text(str((leader, os.getpid())))

        return run

    def pending(self):
        numbers = set(range(self.count)) - self.failed
        return [self.job(n) for n in sorted(numbers) if not (self.folder / f"done-{n}").exists()]

    def on_death(self, retry):
        if not retry(self.job(0)):
            self.failed.add(0)

    def done(self):
        return {path.name: path.read_text() for path in self.folder.glob("done-*")}


class TestScheduler:
    def test_one_job_at_a_time_runs_in_this_process(self, tmp_path):
        queue = Deadly(tmp_path, 2, deaths=0)
        run_jobs(queue, jobs=1, progress=False)
        assert queue.done() == dict.fromkeys(("done-0", "done-1"), str((None, os.getpid())))
        run_jobs(queue, jobs=1, progress=False)  # nothing is pending

    @pytest.mark.parametrize(
        ("deaths", "failed"), [pytest.param(0, set(), marks=pytest.mark.slow), (1, set()), (2, {0})]
    )
    def test_jobs_of_processes_that_die_are_retried_alone(self, tmp_path, deaths, failed):
        queue = Deadly(tmp_path, 3, deaths)
        run_jobs(queue, jobs=2, progress=False)
        assert queue.failed == failed
        assert queue.done().keys() == {f"done-{n}" for n in {0, 1, 2} - failed}
        assert all(text.startswith(f"({os.getpid()}, ") for text in queue.done().values())


class Shown:
    """Three trainings: one ended before, one runs and ends, one never starts."""

    label, total = "trials", 3

    def __init__(self):
        self.ended = False

    def items(self):
        second = Item("b", self.ended, "b is complete", done=3, total=4, value=0.5)
        return {"1": Item("a", True, "a is complete"), "2": second}

    def headline(self):
        return "best 0.5000 (b)" if self.ended else ""


class TestProgress:
    def test_lines(self, capsys):
        shown = Shown()
        with watching(shown):
            shown.ended = True
        assert capsys.readouterr().err.splitlines() == [
            "1 of 3 trials were finished before",
            "[2/3] b is complete  best 0.5000 (b)",
        ]
        with watching(shown, show=False):
            pass
        shown.total = 2  # which have all ended before
        with watching(shown):
            pass
        assert capsys.readouterr().err == ""

    def test_bars_on_a_terminal(self, capsys, monkeypatch):
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("FORCE_COLOR", "1")
        shown = Shown()
        seen, end = "", time.monotonic() + 30
        with watching(shown):
            while "3/4  0.5000" not in seen and time.monotonic() < end:
                time.sleep(0.1)
                seen += capsys.readouterr().err
            assert "left" not in seen  # no training has ended to judge by
            shown.ended = True
            while "left" not in seen and time.monotonic() < end:
                time.sleep(0.1)
                seen += capsys.readouterr().err
        seen += capsys.readouterr().err
        assert "All trials" in seen
        assert "3/4  0.5000" in seen
        assert "[2/3] b is complete  best 0.5000 (b)" in seen
        assert re.search(r"2/3  best 0.5000 \(b\)  \d+ seconds? left", seen)

    def test_a_look_reads_only_units_that_have_begun(self, tmp_path, monkeypatch):
        units = small().units
        waiting, running, failed, finished = units[0], units[1], units[2], units[3]
        run_unit(finished, SOURCE, tmp_path)
        queue = UnitQueue([waiting, running, failed], SOURCE, tmp_path)
        StatusFile(status_path(tmp_path, running), running)
        write_failure(tmp_path, failed, "no luck")
        read = []

        def record(out, unit):
            read.append(unit)
            return read_unit(out, unit)

        monkeypatch.setattr(study_folder, "read_unit", record)
        items = queue.items()
        assert [(item.name, item.ended) for item in items.values()] == [
            (str(failed), True),
            (str(running), False),
        ]
        assert read == [running, failed]
        assert queue.items() == items
        assert read == [running, failed, running]
        run_unit(waiting, SOURCE, tmp_path)
        assert queue.items()[waiting.key].ended


class TestFolders:
    def test_other_data_is_refused_unless_forced(self, tmp_path):
        study = small(folds=[1], methods=[TREES], parameters={TREES: PARAMETERS[TREES]})
        study.run(tmp_path, jobs=1, progress=False)
        other = Study(Source(queries=30, cut=3), [TREES], [1], parameters=study.parameters)
        with pytest.raises(tr.InputError, match=r"results on other data\. .*--force"):
            other.run(tmp_path, jobs=1, progress=False)
        assert len(other.run(tmp_path, jobs=1, progress=False, force=True).units) == 1
        assert len(list((tmp_path / "units").iterdir())) == 2

    def test_other_folders_are_refused(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("…")
        with pytest.raises(
            tr.InputError, match="contains other files and is not a comparison folder"
        ):
            small().run(tmp_path, jobs=1, progress=False)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_other_kinds_are_refused(self, tmp_path):
        study = small(folds=[1], methods=[TREES], parameters={TREES: PARAMETERS[TREES]})
        study.run(tmp_path, jobs=1, progress=False)
        with pytest.raises(tr.InputError, match="contains a comparison, not a tuning"):
            small(kind="tuning").run(tmp_path, jobs=1, progress=False)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("{", "is damaged"),
            ("[]", "is not that of a study"),
            ('{"format": "twinrank-study", "version": 9}', "has version 9"),
            (
                '{"format": "twinrank-study", "version": 1, "kind": "comparison", "data": 3}',
                "does not name the data",
            ),
        ],
    )
    def test_damaged_settings(self, tmp_path, text, complaint):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(tr.InputError, match=complaint):
            small().run(tmp_path, jobs=1, progress=False)

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"methods": []}, "needs at least one method"),
            ({"methods": [NET, NET]}, "named twice"),
            ({"measures": ["nDGC@5"]}, "Did you mean 'nDCG'"),
            ({"methods": [NET]}, "parameters for LambdaMART, but no such method"),
            ({"folds": [1, 1]}, r"folds must be different numbers, not \[1, 1\]"),
            ({"seeds": [0, 0]}, r"seeds must be different numbers, not \[0, 0\]"),
            ({"seeds": [0, -1]}, "Seeds must be 0 or more, not -1"),
        ],
    )
    def test_what_is_no_study(self, changes, complaint):
        with pytest.raises(tr.InputError, match=complaint):
            small(**changes)


# Shards


def sharded(queries=24):
    names = ["LambdaMART", "nDCG-type3 (Boosted)"]
    parameters = {name: {"n_estimators": 2} for name in names}
    return Study(Source(queries=queries, cut=3), names, [1, 2], (0, 1), ["nDCG@5"], parameters)


@pytest.mark.slow
def test_shards_share_a_folder_and_make_the_whole(tmp_path):
    """Three shards at once in processes of their own; the run without shards finds all trained."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    study, out = sharded(), tmp_path / "out"
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_shard, str(out), number) for number in (1, 2, 3)]
        own = [future.result() for future in futures]
    assert sum(own) >= len(study.units)  # each saw at least its own
    trained = {path.name: path.stat().st_mtime_ns for path in (out / "units").iterdir()}
    assert len(trained) == len(study.units)
    results = study.run(out, jobs=1, progress=False)
    assert {p.name: p.stat().st_mtime_ns for p in (out / "units").iterdir()} == trained
    whole = study.run(tmp_path / "whole", jobs=1, progress=False)
    for name in whole.methods:
        assert np.array_equal(
            results.comparison().values[name]["nDCG@5"], whole.comparison().values[name]["nDCG@5"],
            equal_nan=True,
        )  # fmt: skip


def run_shard(out, number):
    results = sharded().run(out, jobs=1, progress=False, shard=(number, 3))
    return len(results.units)


def test_a_shard_waits_for_nobody_but_the_whole_study(tmp_path):
    study = sharded()
    with locked(tmp_path / "out", "training", shared=True):
        assert len(study.run(tmp_path / "out", jobs=1, progress=False, shard=(8, 8)).units) == 1
        with pytest.raises(tr.InputError, match="has been training in"):
            study.run(tmp_path / "out", jobs=1, progress=False)
    with (
        locked(tmp_path / "out", "training"),
        pytest.raises(tr.InputError, match="has been training in"),
    ):
        study.run(tmp_path / "out", jobs=1, progress=False, shard=(1, 8))
    assert len(study.run(tmp_path / "out", jobs=1, progress=False, shard=(20, 20)).units) == 1
    for shard in ((0, 3), (4, 3)):
        with pytest.raises(tr.InputError, match="A shard is written 7/40"):
            study.run(tmp_path / "out", shard=shard)


def test_a_shard_that_meets_half_written_settings_tries_again(tmp_path, monkeypatch):
    """Another shard renames its temporary file just after this one has failed."""
    study, claim, calls = sharded(), Study._claim, []

    def raced(self, folder, force):
        calls.append(folder)
        if len(calls) == 1:
            claim(self, folder, force)
            raise tr.InputError("contains other files")
        claim(self, folder, force)

    monkeypatch.setattr(Study, "_claim", raced)
    monkeypatch.setattr("twinrank.experiments.study.study.time.sleep", lambda _: None)
    study._claim_shared(tmp_path, force=False)
    assert len(calls) == 2
