"""Tuning: the same search for the same seed, whatever kills it, and parameters that train takes."""

import csv
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import matplotlib
import optuna
import pytest

import twinrank as tr
from twinrank.core.ranks.strategies import STRATEGIES
from twinrank.experiments.study.methods import MODEL_KINDS
from twinrank.experiments.study.study_source import Source, Split
from twinrank.experiments.study.units import full_parameters, one_thread
from twinrank.experiments.tuning.search import (
    JOURNAL,
    ReportToTrial,
    TrialRecord,
    Tuning,
    best_of,
    end_running,
    open_search,
    run_trial,
    trials_of,
)
from twinrank.experiments.tuning.space import Choice, Space, Span, spaces_of
from twinrank.experiments.tuning.tuning_results import (
    draw_plots,
    summary,
    toml,
    train_command,
    write_best,
)
from twinrank.learning.models.architecture import architecture
from twinrank.learning.training.settings import DEFAULTS
from twinrank.support.errors import InputError
from twinrank.support.locks import locked

SPLIT = Split(Source(queries=20, cut=1))
SMALL = {"width": Span(4, 16, start=8), "depth": Span(1, 2, start=1)}


def search(model="net", split=SPLIT, own=None, fixed=None, **changes):
    ranges = (SMALL if model == "net" else {}) if own is None else own
    given = {"epochs": 2, "rounds": 4, **changes}
    return Tuning(split, (Space(model, fixed or {}, ranges),), **given)


def run(tuning, out, trials, **choices):
    return tuning.run(out, trials, **{"jobs": 1, "progress": False, **choices})


def results(trials):
    return [(one.number, one.state, one.value, one.parameters) for one in trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search of four trials that nothing interrupted."""
    return run(search(), tmp_path_factory.mktemp("whole") / "out", 4)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Training and validation data as LETOR text."""
    folder = tmp_path_factory.mktemp("data")
    for name, part in SPLIT.sets().items():
        part.save(folder / f"{name}.txt")
    return folder


class TestSearch:
    def test_begins_with_the_defaults(self, whole):
        first = whole[0].parameters
        assert (first["objective"], first["strategy"], first["learning_rate"]) == (
            "nDCG",
            "type3",
            DEFAULTS["net"]["default"]["learning_rate"],
        )
        for name, value in Space("net").start().items():
            if name == "architecture":
                assert architecture(value) == architecture("Small")  # nets are searched one by one
            else:
                own = getattr(tr.Ranker(), name)
                assert value in (own, DEFAULTS["net"]["default"].get(name))
        trees = tr.BoostedRanker().check_parameters()
        for name, value in Space("trees").start().items():
            assert name == "engine_params" or value == trees[name]
        assert len({json.dumps(one.parameters) for one in whole}) == 4
        for model in ("net", "trees"):
            assert set(Space(model).dimensions["strategy"].options) == set(STRATEGIES)

    def test_ensembles_are_held_fixed_for_measures_alone(self):
        measure, own = (
            Space("trees", {"ensemble_size": 2, "objective": name}).start()
            for name in ("AP", "LambdaMART")
        )
        assert measure["ensemble_size"] == 2
        assert "ensemble_size" not in own

    def test_what_a_killed_process_left_counts_for_nothing(self, whole, tmp_path):
        """The same trials as without the kill: so the seed decides, not the process."""
        tuning = search()
        run(tuning, tmp_path, 2)
        study = open_search(tmp_path, tuning, "net")
        trial = study.ask()  # …and here the process dies
        tuning.space("net").draw(trial)
        trial.report(0.9, 1)
        with (tmp_path / JOURNAL).open("a") as file:
            file.write('{"op_code": 4, "wor')
        assert [one.state for one in trials_of(study)] == ["complete", "complete", "running"]
        assert results(run(tuning, tmp_path, 4)) == results(whole)

    def test_killed_in_the_first_trial(self, whole, tmp_path):
        tuning = search()
        run(tuning, tmp_path, 1, timeout=0)
        open_search(tmp_path, tuning, "net").ask()
        assert results(run(tuning, tmp_path, 1)) == results(whole)[:1]

    def test_killed_in_the_first_trial_while_the_second_ended(self, whole, tmp_path):
        tuning = search()
        run(tuning, tmp_path, 1, timeout=0)
        study = open_search(tmp_path, tuning, "net")
        study.ask()  # the defaults, whose process dies
        run_trial(tuning, "net", tmp_path)
        first, second = run(tuning, tmp_path, 2)
        assert (first.is_start, second.is_start) == (False, True)
        assert second.parameters == whole[0].parameters
        assert second.value == whole[0].value
        text = summary(tuning, [replace(first, value=1.0), second])
        assert f"1.0000 (net 1). The defaults had {second.value:.4f}." in text
        failed = replace(second, state="failed")
        assert "The defaults" not in summary(tuning, [first, failed])

    def test_complete_is_complete(self, tmp_path):
        tuning = search("trees")
        before = run(tuning, tmp_path, 2)
        size = (tmp_path / JOURNAL).stat().st_size
        assert run(tuning, tmp_path, 2) == before
        assert (tmp_path / JOURNAL).stat().st_size == size

    def test_another_seed_is_another_search(self, whole, tmp_path):
        found = run(search(seed=1, fixed={"objective": "AP"}), tmp_path, 2)
        assert found[1].chosen["learning_rate"] != whole[1].chosen["learning_rate"]
        assert {one.parameters["objective"] for one in found} == {"AP"}
        assert {one.parameters["random_state"] for one in found} == {1}

    def test_a_trial_that_diverges_has_failed_and_the_search_goes_on(self, tmp_path):
        own = {**SMALL, "learning_rate": Choice((1e38, 1e-3))}
        found = run(search(own=own, fixed={"batch_documents": 500}), tmp_path, 8)
        assert len(found) == 8
        assert found[0].state == "failed"
        assert "finite" in found[0].error
        assert best_of(found)[0].parameters["learning_rate"] == 1e-3

    def test_no_trial_begins_after_the_timeout(self, tmp_path):
        assert run(search(), tmp_path, 3, timeout=0) == []

    def test_a_process_without_its_leader_begins_nothing(self, tmp_path):
        tuning = search()
        run_trial(tuning, "net", tmp_path, leader=os.getpid())  # not our parent
        assert tuning.trials(tmp_path) == []

    def test_two_kinds_of_models_take_turns(self, tmp_path):
        spaces = (Space("net", {}, SMALL), Space("trees"))
        found = run(Tuning(SPLIT, spaces, epochs=1, rounds=2), tmp_path, 1)
        assert [one.name for one in found] == ["net 1", "trees 1"]
        files = write_best(tmp_path, Tuning(SPLIT, spaces, epochs=1, rounds=2), found)
        assert [file.name for file in files] == ["best.toml", "best-net.toml", "best-trees.toml"]

    def test_processes_that_died_have_failed(self, tmp_path):
        tuning = search()
        open_search(tmp_path, tuning, "net").ask()
        assert end_running(tmp_path, tuning, "it died") == 1
        (one,) = tuning.trials(tmp_path)
        assert (one.state, one.error) == ("failed", "it died")

    def test_another_search_is_left_alone(self, tmp_path):
        run(search("trees"), tmp_path, 1)
        with pytest.raises(InputError, match=r"other seed\. Choose another --out, or pass --force"):
            run(search("trees", seed=5), tmp_path, 1)
        found = run(search("trees", seed=5), tmp_path, 1, force=True)
        assert [one.parameters["random_state"] for one in found] == [5]

    def test_a_folder_of_something_else_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(InputError, match="contains other files and is not a search folder"):
            run(search(), tmp_path, 1)

    def test_one_process_at_a_time(self, tmp_path):
        complaint = f"Process {os.getpid()} on .* has been searching in"
        with locked(tmp_path, "searching"), pytest.raises(InputError, match=complaint):
            run(search(), tmp_path, 1, force=True)

    def test_processes_get_the_same_search(self):
        tuning = search(own={"alpha": Choice((1.0, 2.0)), **SMALL}, fixed={"clip": None})
        assert pickle.loads(pickle.dumps(tuning)) == tuning


class TestPruning:
    @pytest.fixture
    def trial(self, tmp_path):
        study = open_search(tmp_path, search(epochs=10), "net")
        for i in range(5):
            reported = dict.fromkeys(range(1, 11), 0.5 + i / 100)
            study.add_trial(optuna.create_trial(value=0.5, intermediate_values=reported))
        return study.ask()

    def test_below_the_median_a_trial_ends(self, trial):
        with pytest.raises(optuna.TrialPruned):
            ReportToTrial(trial, 10).on_iteration_end(None, {"iteration": 2, "validation": 0.1})

    def test_the_best_so_far_counts(self, trial):
        reports = ReportToTrial(trial, 10)
        reports.on_iteration_end(None, {"iteration": 1, "validation": 0.6})
        reports.on_iteration_end(None, {"iteration": 2, "validation": 0.1})
        assert trial.study.trials[-1].intermediate_values == {1: 0.6, 2: 0.6}

    def test_not_in_the_last_epoch_nor_before_the_warm_up(self, trial):
        ReportToTrial(trial, 10).on_iteration_end(None, {"iteration": 10, "validation": 0.1})
        reports_every_tenth = ReportToTrial(trial, 300)
        reports_every_tenth.on_iteration_end(None, {"iteration": 9, "validation": 0.1})
        assert list(trial.study.trials[-1].intermediate_values) == [10]


class TestSpaces:
    @pytest.mark.parametrize("model", MODEL_KINDS)
    def test_whatever_is_drawn_can_be_trained(self, model):
        space = Space(model)
        prefixes = ("trees__", "net__") if model == "blend" else ("",)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        seen = {prefix: set() for prefix in prefixes}
        for _ in range(60):
            drawn = space.draw(study.ask())
            full_parameters(MODEL_KINDS[model].estimator.__name__, drawn)
            for prefix in prefixes:
                found = {k.removeprefix(prefix): v for k, v in drawn.items() if prefix in k}
                seen[prefix].add(found["objective"])
                indirect = found["objective"] in ("ListNet", "ApproxNDCG", "LambdaMART")
                assert indirect == ("strategy" not in found)
                assert ("samples" in found) == (not indirect and found["perturbation"] > 0)
        for prefix in prefixes:
            assert seen[prefix] == set(space.dimensions[f"{prefix}objective"].options)

    @pytest.mark.parametrize(
        ("model", "ranker"),
        [
            ("net", tr.Ranker(architecture="Small", epochs=1)),
            ("trees", tr.BoostedRanker(n_estimators=3)),
        ],
    )
    def test_the_start_is_the_library_s_defaults(self, model, ranker):
        """To the last bit, so that what is found is never worse; but of nets there is one."""
        sets = SPLIT.sets()
        own = {"epochs": 1} if model == "net" else {"n_estimators": 3}
        start = type(ranker)(**Space(model).start(), **own)
        with one_thread():
            for one in (start, ranker):
                one.fit(sets["train"])
            assert (start.predict(sets["validation"]) == ranker.predict(sets["validation"])).all()

    def test_what_is_fixed_isnt_searched(self):
        (net,) = spaces_of(["net"], ["depth=2", "norm=none", "early_stopping=3", "clip=none"])
        assert not {"depth", "norm"} & net.dimensions.keys()
        start = net.start()
        assert "depth=2" in start["architecture"]
        assert "norm=none" in start["architecture"]
        assert (start["early_stopping"], start["clip"]) == (3, None)
        (net,) = spaces_of(["net"], ["architecture=CE4.L"])
        assert not {"depth", "width", "dropout"} & net.dimensions.keys()
        assert net.start()["architecture"] == "CE4.L"

    def test_of_two_models_each_takes_what_it_has(self):
        net, trees = spaces_of(["net", "trees"], ["objective=AP", "lambda_l2=3", "depth=1"])
        assert net.fixed == {"objective": "AP", "depth": 1}
        assert trees.fixed == {"objective": "AP", "lambda_l2": 3}
        assert trees.start()["engine_params"]["lambda_l2"] == 3

    def test_xgboost_has_its_own_settings(self):
        (trees,) = spaces_of(["trees"], ["engine=xgboost", "objective=AP"])
        assert "engine_params" not in trees.start()

    def test_help_shows_the_brackets_of_toml(self, cli):
        words = re.sub(r"[│\s]+", " ", cli("tune", "--help")[1])
        assert "in the table [net], [trees] or [blend]" in words
        assert "a list of choices such as [16, 32]" in words

    def test_ranges_from_a_file(self, tmp_path):
        path = tmp_path / "space.toml"
        path.write_text(
            "[net]\nobjective = ['AP']\ndepth = {low = 1, high = 2}\nclip = ['none', 1.0]\n"
            "learning_rate = {low = 0.01, high = 0.1, log = true}\n"
        )
        (net,) = spaces_of(["net"], [], path)
        assert net.dimensions["depth"] == Span(1, 2, start=1)
        assert net.dimensions["clip"].options == (None, 1.0)
        drawn = net.draw(optuna.create_study().ask())
        assert drawn["objective"] == "AP"
        assert 0.01 <= drawn["learning_rate"] <= 0.1

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[nets]\n", "Unknown model 'nets'. Did you mean 'net'"),
            ("[net]\nalhpa = [1.0]", "Did you mean 'alpha'"),
            ("[net]\nalpha = 1.0", "hold a value fixed with --fix"),
            ("[net]\nalpha = []", "nothing to choose from"),
            ("[net]\nalpha = {low = 2.0, high = 1.0}", "must have low < high"),
            ("[net]\nalpha = {low = 0.0, high = 1.0, log = true}", "0 < low < high"),
            ("[net]\nalpha = {lwo = 0.0, high = 1.0}", "Did you mean 'low'"),
            ("[net]\nalpha = {low = 1.0}", "must have numbers as low and high"),
            ("[net]\nalpha = {low = 1.0, high = 2.0, step = 0}", "a positive step"),
            ("[net]\nalpha = {low = 1.0, high = 2.0, start = 3.0}", "a start from low to high"),
            ("[net]\nalpha = {low = 1.0, high = 2.0, log = 1}", "log must be true or false"),
            ("[net]\nepochs = [1, 2]", "with --epochs"),
            ("[net", "is not TOML"),
        ],
    )
    def test_a_file_that_says_something_else(self, tmp_path, text, said):
        path = tmp_path / "space.toml"
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            spaces_of(["net"], [], path)


class TestFiles:
    def test_toml_is_read_as_it_was_written(self):
        value = {"a": 'x "y"\n\x7f', "b c": [1, 1e-07, 2.0, True], "d": {"e": -3}}
        assert tomllib.loads(f"v = {toml(value)}")["v"] == value

    def test_trees_by_the_best_parameters_are_the_best_trial(self, tmp_path):
        tuning = search("trees")
        found = run(tuning, tmp_path, 3)
        write_best(tmp_path, tuning, found)
        parameters = tomllib.loads((tmp_path / "best.toml").read_text())
        sets = SPLIT.sets()
        ranker = tr.BoostedRanker(**parameters).fit(sets["train"], eval_set=sets["validation"])
        assert ranker.best_score_ == best_of(found)[0].value

    def test_the_command_that_trains_with_the_best_parameters(self, files, tmp_path):
        assert train_command(search("trees"), "trees", Path("b.toml")) == (
            "twinrank train --trees --config b.toml"
        )
        (tmp_path / "Fold2").mkdir()
        for name in ("train", "test"):
            shutil.copy(files / "train.txt", tmp_path / "Fold2" / f"{name}.txt")
        reading = {"unjudged": "keep", "zero_based": False, "label": False, "ignore": ["a b"]}
        folder = search("trees", split=Split(Source.of(tmp_path, {}, cut=1), fold=2))
        found = TrialRecord("trees", 1, "complete", 0.5, 3, 1.0, {}, {"num_leaves": 7}, "")
        (path,) = write_best(tmp_path, folder, [found])
        command = f"twinrank train {tmp_path} --fold 2 --trees --config {path}"
        assert f"# Use it with: {command}\n" in path.read_text()
        read = search(split=Split(Source.of(tmp_path, reading, cut=1), fold=2))
        assert train_command(read, "net", Path("b.toml")).endswith(
            "--fold 2 --config b.toml --unjudged keep --no-label --ignore 'a b'"
        )

    def test_plots_are_optuna_s(self, tmp_path):
        tuning, study = search(), open_search(tmp_path, search(), "net")
        assert draw_plots(tmp_path, tuning, trials_of(study)) == []
        there = optuna.distributions.FloatDistribution(0, 1)
        for i in range(10):
            given = {"matters": i / 10, "doesnt": (i * 7 % 10) / 10}
            ranges = dict.fromkeys(given, there)
            trial = optuna.create_trial(params=given, distributions=ranges, value=i / 10)
            study.add_trial(trial)
        before = dict(matplotlib.rcParams)
        drawn = draw_plots(tmp_path, tuning, trials_of(study))
        assert [path.name for path in drawn] == ["history.png", "importance.png"]
        assert all(path.stat().st_size > 1000 for path in drawn)
        assert matplotlib.rcParams == before


class TestCommand:
    def test_the_best_parameters_train_to_the_same_value(self, cli, files, tmp_path):
        data = [files / "train.txt", "--valid", files / "validation.txt"]
        space = tmp_path / "space.toml"
        space.write_text("[net]\nwidth = {low = 4, high = 16}\ndepth = {low = 1, high = 2}\n")
        out = tmp_path / "out"
        words = ["--trials", 3, "--epochs", 2, "--jobs", 1, "--fix", "dropout=0.1"]
        code, said, told = cli("tune", *data, *words, "--space", space, "--out", out)
        assert code == 0, told
        assert "The best trials: net" in said
        assert "[3/3] net 3" in told
        assert f"Train with them: twinrank train {data[0]} --valid {data[2]} --config {out}" in said
        trials = json.loads((out / "trials.json").read_text())
        best = max(one["value"] for one in trials)
        assert f"Best nDCG@5 on the validation queries: {best:.4f}" in said
        rows = list(csv.DictReader((out / "trials.csv").read_text().splitlines()))
        assert [row["objective"] for row in rows] == [one["chosen"]["objective"] for one in trials]
        assert "dropout" not in rows[0]  # it was fixed
        assert (out / "history.png").stat().st_size > 1000
        with one_thread():
            code, _, told = cli(
                "train", *data, "--config", out / "best.toml", "--out", tmp_path / "run"
            )
        assert code == 0, told
        lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
        after = best_of([TrialRecord(**one) for one in trials])[0].after
        assert json.loads(lines[after - 1])["validation"] == best

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--fix", "strateg=type1"], "Did you mean 'strategy'"),
            (["--fix", "depth"], "--fix depth: write key=value"),
            (["--fix", "epochs=3"], "with --epochs"),
            (["--fix", "strategy=type9"], "Unknown strategy 'type9'"),
            (["--fix", "depth=-2"], "depth must be a whole number"),
            (["--fix", "architecture=R5", "--fix", "depth=2"], "pass architecture=MLP(depth=…)"),
            (["--model", "trees", "--fix", "depth=2"], "Unknown parameter of trees 'depth'"),
            (["--model", "tree"], "Did you mean 'trees'"),
            (["--measure", "nDGC@5"], "Did you mean 'nDCG'"),
            (["--valid", "x.txt"], "--valid needs a file"),
            (["--fold", "2"], "--fold needs a folder"),
            (["nowhere.txt"], "nowhere.txt"),
        ],
    )
    def test_mistakes_are_one_line(self, cli, tmp_path, words, said):
        code, _, told = cli("tune", *words, "--out", tmp_path / "out")
        assert code == 2
        assert said in told
        assert told.startswith("Error: ")
        assert not (tmp_path / "out").exists()

    def test_addresses_and_homes(self, cli, files, tmp_path, monkeypatch):
        """Validation data by its address, and an output folder in the user's home."""
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path)
        SPLIT.sets()["validation"].save(tmp_path / "validation.parquet")
        words = ["--valid", (tmp_path / "validation.parquet").as_uri(), "--out", "~/tuned"]
        words += ["--model", "trees", "--trials", 1, "--rounds", 2, "--jobs", 1]
        code, _, told = cli("tune", files / "train.txt", *words)
        assert code == 0, told
        assert (tmp_path / "home" / "tuned" / "best.toml").exists()
        assert not (tmp_path / "~").exists()

    def test_without_optuna(self, cli, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        code, _, told = cli("tune")
        assert code == 2
        assert "pip install 'twinrank[tune]'" in told

    def test_if_no_trial_is_completed_the_reason_is_said(self, cli, files, tmp_path):
        words = ["--jobs", 1, "--trials", 1, "--fix", "learning_rate=1e38", "--epochs", 3]
        code, _, told = cli("tune", files / "train.txt", *words, "--out", tmp_path / "out")
        assert code == 2
        assert "No trial was completed; the last one failed:" in told


@pytest.mark.slow
class TestElsewhere:
    def test_killed_and_taken_up_again(self, tmp_path):
        """kill -9 in the midst of a trial, then the same search once more."""
        tuning, out = search(epochs=200, fixed={"early_stopping": None}), tmp_path / "out"
        code = (
            "import pickle, sys; "
            "pickle.loads(bytes.fromhex(sys.argv[1])).run(sys.argv[2], 3, jobs=1)"
        )
        words = [pickle.dumps(tuning).hex(), str(out)]
        process = subprocess.Popen([sys.executable, "-c", code, *words])
        try:
            while not _second_has_begun(out, tuning):
                assert process.poll() is None
                time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
        found = run(tuning, out, 3)
        assert results(found) == results(run(tuning, tmp_path / "other", 3))

    def test_several_processes_share_a_search(self, tmp_path):
        found = run(search(), tmp_path, 5, jobs=2)
        assert [one.number for one in found] == [1, 2, 3, 4, 5]
        assert {one.state for one in found} <= {"complete", "pruned", "failed"}

    def test_a_ray_cluster_runs_trials(self, whole, tmp_path):
        pytest.importorskip("ray")
        found = run(search(), tmp_path, 2, jobs=1, ray="local")
        assert results(found) == results(whole)[:2]


def _second_has_begun(out, tuning):
    if not (out / JOURNAL).exists():
        return False
    there = tuning.trials(out)
    return len(there) == 2 and there[1].after > 0
