"""benchmarks/text_sets.py: WikiQA and SciFact in miniature."""

import importlib
from pathlib import Path

import pytest

import twinrank as tr

pytest.importorskip("sentence_transformers")

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def sets(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("text_sets")


def wikiqa(folder, ids="1\n1\n2\n", labels="0\n1\n1\n", questions="a ?\na ?\nb ?\n"):
    for name, text in (("id.txt", ids), ("sim.txt", labels), ("a.toks", questions)):
        (folder / f"dev.{name}").write_text(text, "utf-8")
    (folder / "dev.b.toks").write_text("x .\ny .\nz .\n", "utf-8")
    return folder


def test_reads_wikiqa(sets, tmp_path):
    columns = sets.read_wikiqa(wikiqa(tmp_path), "dev").columns()
    assert columns == {
        "query": ["a ?", "b ?"],
        "documents": [["x .", "y ."], ["z ."]],
        "labels": [[0, 1], [1]],
    }
    with pytest.raises(tr.InputError, match="Unknown split 'validation'"):
        sets.read_wikiqa(tmp_path, "validation")
    with pytest.raises(tr.FileError, match=r"test\.id\.txt"):
        sets.read_wikiqa(tmp_path, "test")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ids": "1\n1\n"}, r"same number of lines: dev.id.txt 2, dev.a.toks 3"),
        ({"labels": "0\nyes\n1\n"}, r"dev.sim.txt, line 2: a grade must be"),
        ({"questions": "a ?\nc ?\nb ?\n"}, r"dev.a.toks, line 2: question '1' has another text"),
    ],
)
def test_refuses_a_damaged_wikiqa(sets, tmp_path, files, message):
    with pytest.raises(tr.InputError, match=message):
        sets.read_wikiqa(wikiqa(tmp_path, **files), "dev")


def scifact(folder, claims=""):
    (folder / "corpus_train.csv").write_text(
        "doc_id,title,abstract,structured\n"
        "7,Cells,\"['It\\'s one.'\n \"\"Two's.\"\"]\",False\n8,Mice,['Three.'],True\n",
        "utf-8",
    )
    header = "id,claim,evidence_doc_id,evidence_label,evidence_sentences,cited_doc_ids\n"
    test = "1,A claim,7,SUPPORT,[1],[7 8]\n1,A claim,7,SUPPORT,[0],[7 8]\n2,Other,,,[],[8]\n"
    train = "".join(f"{i},Claim {i},,,[],[8]\n" for i in range(10))
    (folder / "claims_validation.csv").write_text(header + (claims or test), "utf-8")
    (folder / "claims_train.csv").write_text(header + train, "utf-8")
    return folder


def test_reads_scifact(sets, tmp_path):
    data = sets.read_scifact(scifact(tmp_path), "test")
    assert data.corpus == {"7": "Cells It's one. Two's.", "8": "Mice Three."}
    assert data.qrels == {"1": {"7": 2, "8": 1}, "2": {"8": 1}}
    train, dev = (
        set(sets.read_scifact(tmp_path, part, dev_share=0.3).queries) for part in ("train", "dev")
    )
    assert (len(train), len(dev)) == (7, 3)
    assert not train & dev
    with pytest.raises(tr.InputError, match="dev_share must be between"):
        sets.read_scifact(tmp_path, dev_share=1)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ("1,A,9,SUPPORT,[1],[9]\n", r"line 2: document '9' has no abstract"),
        ("1,A,7\n", r"claims_validation.csv, line 2: the row does not have 6 fields"),
    ],
)
def test_refuses_a_damaged_scifact(sets, tmp_path, claims, message):
    with pytest.raises(tr.InputError, match=message):
        sets.read_scifact(scifact(tmp_path, claims), "test")
