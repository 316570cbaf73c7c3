"""TensorBoard's files, read back: every iteration once, also after an interruption."""

import json
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import twinrank as tr
from twinrank.cli import main
from twinrank.learning.training.callbacks import TrainingInterrupted
from twinrank.support.errors import FileError, InputError
from twinrank.training import TensorBoard

pytestmark = pytest.mark.usefixtures("one_thread")


def curves(folder):
    """Values by tag and iteration."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def values_of(history, key):
    return [(line["iteration"], pytest.approx(line[key])) for line in history if key in line]


def test_a_fit_is_written_by_epoch(tmp_path):
    data = tr.synthetic_web_search(queries=12)
    sets = {"validation": data.select(range(4)), "test": data.select(range(4, 8))}
    ranker = tr.Ranker(
        architecture="Linear", epochs=4, schedule="halve", halve_every=2, validate_every=3,
        validation_measure="AP",
    )  # fmt: skip
    ranker.fit(data, eval_set=sets, callbacks=[TensorBoard(tmp_path)])
    written = curves(tmp_path)
    assert written == {
        "loss": values_of(ranker.history_, "loss"),
        "learning_rate": values_of(ranker.history_, "learning_rate"),
        "AP/validation": values_of(ranker.history_, "validation"),
        "AP/test": values_of(ranker.history_, "test"),
    }
    assert [epoch for epoch, _ in written["AP/validation"]] == [3, 4]


def test_a_second_training_replaces_the_first(tmp_path):
    data = tr.synthetic_web_search(queries=6)
    for epochs in (3, 2):
        ranker = tr.Ranker(architecture="Linear", epochs=epochs)
        ranker.fit(data, callbacks=[TensorBoard(tmp_path)])
    assert curves(tmp_path)["loss"] == values_of(ranker.history_, "loss")


@pytest.fixture
def train(monkeypatch, tmp_path, capsys):
    def command(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["twinrank", "train", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, capsys.readouterr().err

    return command


def interrupt_second_epoch(_, trainer, record):
    if record["iteration"] == 2:
        raise TrainingInterrupted("interrupted")


def test_a_resumed_run_has_every_epoch_once(train, tmp_path, monkeypatch):
    tr.synthetic_web_search(queries=8).save(tmp_path / "t.txt")
    words = ["t.txt", "--epochs", 4, "--set", "architecture=Linear", "--quiet", "--tensorboard"]
    with monkeypatch.context() as patch:  # before the curves of epoch 2
        patch.setattr(TensorBoard, "on_iteration_end", interrupt_second_epoch)
        assert train(*words)[0] == 130
    assert curves(tmp_path / "run" / "tensorboard").keys() <= {"loss", "learning_rate"}
    assert train("--resume", "run", "--quiet") == (0, "")
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    history = [json.loads(line) for line in lines]
    assert [record["iteration"] for record in history] == [1, 2, 3, 4]
    written = curves(tmp_path / "run" / "tensorboard")
    assert written["loss"] == values_of(history, "loss")
    assert written["nDCG@5/validation"] == values_of(history, "validation")


def test_an_error_says_how_to_install_it(train, tmp_path, monkeypatch):
    path = "twinrank.learning.training.callbacks.find_spec"
    monkeypatch.setattr(path, lambda name: None if name == "tensorboard" else 1)
    with pytest.raises(InputError, match=r"pip install 'twinrank\[track\]'"):
        TensorBoard(tmp_path)
    assert train("--tensorboard")[0] == 2
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    ranker = tr.Ranker(architecture="Linear", epochs=1)
    with pytest.raises(FileError, match="Can't write"):
        ranker.fit(
            tr.synthetic_web_search(queries=4), callbacks=[TensorBoard(tmp_path / "file" / "x")]
        )
