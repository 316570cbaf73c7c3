"""The command line in its own process."""

import subprocess
import sys

import pytest


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "twinrank", *words], capture_output=True, text=True, timeout=120
    )


def test_version_and_help():
    import twinrank

    assert run("--version").stdout == f"twinrank {twinrank.__version__}\n"
    shown = run("--help")
    assert run().stdout == shown.stdout
    assert shown.returncode == 0
    assert "measures" in shown.stdout
    assert "reproduce" in shown.stdout


def test_measures_lists_every_measure():
    from twinrank.core.measures import MEASURES

    shown = run("measures")
    assert shown.returncode == 0
    assert all(kind.name in shown.stdout for kind in MEASURES)
    assert "nDCG(gain=linear)@5 is valid" in run("measures", "nDCG(gain=linear)@5").stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["measures", "ndcg@10"], "Unknown measure 'ndcg'. Did you mean 'nDCG'"),
        (["measures", "nDCG(gian=linear)"], "Unknown option of nDCG 'gian'. Did you mean 'gain'"),
        (["measures", "nDCG@ten"], "Can't read 'nDCG@ten'"),
        (["reproduce", "--table", "9"], "Table 9 is not available"),
        (["reproduse"], "No such command"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(words, complaint):
    answer = run(*words)
    assert answer.returncode == 2
    assert complaint in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.slow
def test_reproduce_shows_measured_beside_published(tmp_path):
    shown = run("reproduce", "--table", "3", "--out", str(tmp_path))
    assert shown.returncode == 0
    assert "Table 3" in shown.stdout
    assert "Table 2" not in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if "ties broken" in line)
    assert line.split()[-3:] == ["0.00", "0.00", "0.00"]


@pytest.mark.parametrize("words", [["--help"], ["measures"]])
def test_nothing_heavy_is_imported(words):
    code = (
        "import sys\n"
        f"sys.argv = ['twinrank', *{words!r}]\n"
        "from twinrank.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_help_is_readable_in_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = cli("train", "--help")
    assert code == 0
    assert out.count("<bool>") == 1  # of --help itself
    titles = [line.split("─ ")[1].split(" ─")[0] for line in out.splitlines() if "╭─ " in line]
    assert titles == [
        *("Arguments", "Options", "Data", "Model and training", "Run"),
        "Options for reading data",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--paper", "--trees", "--set", "engine=xgboost"], "Use --set engine=lightgbm."),
        (["--set", "precision=mixed"], "--set precision=mixed needs a GPU"),
        (["--architecture", "no.such:net"], "The architecture 'no.such:net' cannot be imported"),
    ],
)
def test_errors_name_options_of_the_command_line(cli, words, said):
    code, _, err = cli("train", *words)
    assert code == 2
    assert said in err


def test_no_device_is_advised_that_is_not_there(cli, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    _, _, err = cli("train", "--set", "device=cuda:7")
    assert err == "Error: There is no device 'cuda:7' here; use auto or cpu.\n"
