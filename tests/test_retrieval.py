"""Bi-encoders: the loss, its collator and the evaluators, with a tiny transformer made here."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import twinrank as tr
from tiny_bert import WORDS, save_tiny_bert
from twinrank.support.arrays import device_path

if importlib.util.find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence-transformers", allow_module_level=True)

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched

ROWS = [
    {"query": "cat", "documents": ["a cat runs", "bad dog", "fish"], "labels": [2, 0, 1]},
    {"query": "the dog", "documents": ["good dog"], "labels": [1]},
    {"query": "fish", "documents": ["fish eats", "bird", "fish", "a cat"], "labels": [1, 0, 0, 3]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("bi") / "tiny")


@pytest.fixture
def model(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder))
    pooling = Pooling(transformer.get_embedding_dimension())
    return SentenceTransformer(modules=[transformer, pooling], device="cpu").eval()


def collated(model, rows=ROWS):
    """The features and labels that the trainer passes to the loss."""
    from twinrank.text import RetrievalCollator

    batch = RetrievalCollator(model.preprocess)(rows)
    names = [name for name in rows[0] if name != "labels"]
    return [part(batch, name) for name in names], batch["label"]


def part(batch, name):
    return {k.removeprefix(f"{name}_"): v for k, v in batch.items() if k.startswith(f"{name}_")}


def columns(model, *texts):
    return [model.preprocess(list(column)) for column in texts]


def exact(model, *arguments, **options):
    """The loss on exact ranks, in which nothing is random, with its own gradient."""
    from twinrank.text import DirectRetrievalLoss

    options = {"gradient_limit": None, **options}
    return DirectRetrievalLoss(model, *arguments, perturbation=0, samples=1, **options)


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def embedded(model, texts):
    return torch.nn.functional.normalize(model(model.preprocess(texts))["sentence_embedding"])


TEXTS = ["a cat runs", "bad dog", "fish", "good dog", "fish eats", "bird", "a cat"]
GRADES = [[2, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 3]]


@pytest.mark.parametrize(("measure", "strategy"), [("nDCG@10", "swap"), ("AP", "type3")])
def test_ranks_all_documents_of_the_batch(model, measure, strategy):
    loss = exact(model, measure, strategy, temperature=0.2)(*collated(model))
    scores = embedded(model, [row["query"] for row in ROWS]) @ embedded(model, TEXTS).T / 0.2
    expected = tr.DirectLoss(measure, strategy)(
        scores.flatten(), torch.tensor(GRADES).flatten(), tr.Lists.from_sizes([7] * 3)
    )
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    ours, theirs = gradient(model, loss), gradient(model, expected)
    assert ours.abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("size", "dropout"), [(1, False), (3, False), (100, False), (100, True)])
def test_cached_gradients_are_the_same(model, size, dropout):
    model.train(dropout)
    results = []
    for mini_batch_size in (None, size):
        torch.manual_seed(1)
        loss = exact(model, mini_batch_size=mini_batch_size)(*collated(model))
        results.append((loss.item(), gradient(model, loss * 2)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-6)
    with torch.no_grad():  # as the trainer evaluates
        assert exact(model, mini_batch_size=size)(*collated(model)).isfinite()


@pytest.mark.parametrize("size", [None, 2])
def test_the_gradient_of_each_query_has_a_limit(model, size):
    loss = exact(model, temperature=0.2, gradient_limit=0.1, mini_batch_size=size)
    ours = gradient(model, loss(*collated(model)) * 3)  # a factor as of a gradient scaler
    scores = embedded(model, [row["query"] for row in ROWS]) @ embedded(model, TEXTS).T / 0.2
    leaf = scores.detach().requires_grad_()
    direct = tr.DirectLoss("nDCG@10", "swap", reduction="sum")
    direct(leaf.flatten(), torch.tensor(GRADES).flatten(), tr.Lists.from_sizes([7] * 3)).backward()
    sums = leaf.grad.abs().sum(1, keepdim=True)
    assert sums.max() > 0.1
    limited = leaf.grad / (1 + sums / 0.1)
    expected = gradient(model, (scores * limited).sum())
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-6)


def test_cached_gradients_need_the_memory_of_one_mini_batch(model):
    rows = [{"query": "cat", "documents": WORDS, "labels": [1, *[0] * 9]}]
    kept = []
    for size in (1, None):
        numbers = 0

        def keep(tensor):
            nonlocal numbers
            numbers += tensor.numel()
            return tensor

        features, labels = collated(model, rows)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            exact(model, mini_batch_size=size)(features, labels)
        kept.append(numbers)
    assert kept[0] < kept[1] / 20


@pytest.mark.parametrize("size", [None, 2])
def test_works_inside_matryoshka_loss(model, size):
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

    features, labels = collated(model)
    wrapped = MatryoshkaLoss(model, exact(model, mini_batch_size=size), [32, 8], [1, 0.5])
    value = wrapped(features, labels)
    ours = gradient(model, value)

    queries, documents = embedded(model, [row["query"] for row in ROWS]), embedded(model, TEXTS)
    direct, lists = tr.DirectLoss("nDCG@10", "swap"), tr.Lists.from_sizes([7] * 3)
    expected = 0
    for width, weight in ((32, 1), (8, 0.5)):
        q, d = (torch.nn.functional.normalize(x[:, :width]) for x in (queries, documents))
        scores = (q @ d.T / 0.05).flatten()
        expected += weight * direct(scores, torch.tensor(GRADES).flatten(), lists)
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(ours, gradient(model, expected), rtol=1e-3, atol=1e-5)


def test_columns_of_single_texts(model):
    columns_ = columns(model, ["cat", "the dog"], ["a cat", "good dog"], ["bird", "fish"])
    plain = exact(model)(columns_, None)
    graded = exact(model)(columns_, torch.tensor([[1, 0], [1, 0]]))
    rows = [
        {"query": "cat", "documents": ["a cat", "bird"], "labels": [1, 0]},
        {"query": "the dog", "documents": ["good dog", "fish"], "labels": [1, 0]},
    ]
    assert plain.item() == graded.item() == exact(model)(*collated(model, rows)).item()
    grades, mask, *_ = exact(model)._judged(columns_, torch.tensor([[0, 2], [3, 0]]))
    assert grades.tolist() == [[0, 0, 2, 0], [0, 3, 0, 0]]
    assert mask.all()


def test_equal_texts_are_no_negatives(model):
    loss = exact(model)
    # The document of the second row is the positive of the first, and both queries are equal.
    twice = columns(model, ["cat", "cat"], ["a cat", "fish"], ["fish", "a cat"])
    once = collated(model, [{"query": "cat", "documents": ["a cat", "fish"], "labels": [1, 1]}])
    assert loss(twice, None).item() == pytest.approx(loss(*once).item(), abs=1e-6) == -1
    # An equal text of another query counts once.
    twice = columns(model, ["cat", "the dog"], ["a cat", "good dog"], ["bird", "bird"])
    grades, mask, counts, divisor = loss._judged(twice, None)
    assert grades.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert mask[0].tolist() == [True, True, True, False]
    assert (counts, divisor) == ([4], 2)


def test_inputs_without_tokens_all_differ(model):
    from twinrank.text import bi_encoder

    images = {"pixel_values": torch.zeros(3, 2), "input_ids": torch.zeros(3, 2), "modality": "x"}
    assert len(set(bi_encoder._keys(images))) == 3
    ids = torch.tensor([5, 6, 5, 6, 7])
    flat = {"input_ids": ids, "offsets": torch.tensor([0, 2, 4])}
    packed = {"input_ids": ids[None], "cu_seq_lens_q": torch.tensor([0, 2, 4, 5])}
    for features in (flat, packed):
        first, second, third = bi_encoder._keys(features)
        assert first == second != third


def test_two_processes_are_like_one(model, monkeypatch):
    """Each process ranks the documents of both; the processes are imitated one after the other."""
    from twinrank.text import bi_encoder

    rows = [
        *ROWS,
        {"query": "cat", "documents": ["good dog", "bird", "cat"], "labels": [1, 2, 0]},
        {"query": "bad", "documents": ["the"], "labels": [0]},
    ]
    shares = [collated(model, rows[:1]), collated(model, rows[1:])]
    whole = exact(model)(*collated(model, rows))
    expected = gradient(model, whole)

    loss = exact(model, gather_across_devices=True)
    sent = []
    monkeypatch.setattr(bi_encoder, "gathered_objects", lambda value: sent.append(value) or [value])
    for share in shares:
        loss(*share)
    documents = [model(dict(features[1]))["sentence_embedding"] for features, _ in shares]
    judged = {True: sent[::2], False: [1, 3]}  # the number of queries that count comes second
    monkeypatch.setattr(
        bi_encoder, "gathered_objects", lambda value: judged[isinstance(value, tuple)]
    )
    monkeypatch.setattr(bi_encoder, "gathered_rows", lambda rows, counts: torch.cat(documents))
    both = sum(loss(*share) for share in shares) / 2
    assert both.item() == pytest.approx(whole.item(), abs=1e-6)
    torch.testing.assert_close(gradient(model, both), expected, rtol=1e-3, atol=1e-6)


def test_a_query_with_nothing_relevant_teaches_nothing(model):
    rows = [ROWS[0], {"query": "bird", "documents": ["the"], "labels": [0]}]
    alone = exact(model)(*collated(model, [{**ROWS[0], "documents": [*ROWS[0]["documents"], "the"],
                                            "labels": [2, 0, 1, 0]}]))  # fmt: skip
    assert exact(model)(*collated(model, rows)).item() == pytest.approx(alone.item(), abs=1e-6)
    for size in (None, 1):
        empty = exact(model, mini_batch_size=size)(*collated(model, rows[1:]))
        assert empty.item() == 0
        assert gradient(model, empty).abs().max() == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "a", "documents": ["b"]}], "a column of lists of labels named label or labels"),
        ([{"query": "a", "documents": "b", "labels": [1]}], "one text instead of a list"),
        (
            [{"query": "a", "documents": ["b"], "labels": [1, 0]}],
            "'a' has 1 documents but 2 labels",
        ),
        ([{"query": "a", "documents": ["b"], "labels": 1}], "1 documents but one label for all"),
        ([{"query": "a", "documents": [], "labels": []}], "No query of the batch has a document"),
    ],
)
def test_refuses_rows_that_do_not_fit(model, rows, message):
    with pytest.raises(tr.InputError, match=message):
        collated(model, rows)


def test_refuses_columns_that_do_not_fit(model):
    two = columns(model, ["cat", "the dog"], ["a cat", "good dog"])
    loss = exact(model)
    with pytest.raises(tr.InputError, match=r"shape \(2, 2\) for 2 queries and 1 columns"):
        loss(two, torch.tensor([[1, 0], [1, 0]]))
    with pytest.raises(tr.InputError, match="labels contain NaN"):
        loss(two, torch.tensor([1, float("nan")]))
    with pytest.raises(tr.InputError, match="at least one column of documents, not 1"):
        loss(two[:1], None)
    with torch.no_grad():
        next(model.parameters())[:] = float("nan")
    with pytest.raises(tr.InputError, match="embeddings of 2 of 2 queries contain NaN"):
        loss(two, None)
    with device_path("torch"):  # as on a GPU
        assert exact(model, validate=False)(two, None).isnan()


def test_refuses_other_models_and_options(model):
    from twinrank.text import DirectRetrievalLoss

    with pytest.raises(tr.InputError, match="needs a SentenceTransformer, not a Linear"):
        DirectRetrievalLoss(torch.nn.Linear(2, 1))
    with pytest.raises(tr.InputError, match="temperature must be a positive number"):
        DirectRetrievalLoss(model, temperature=0)
    with pytest.raises(tr.InputError, match="gradient_limit must be a positive number"):
        DirectRetrievalLoss(model, gradient_limit=0)
    with pytest.raises(tr.InputError, match="mini_batch_size must be a positive whole number"):
        DirectRetrievalLoss(model, mini_batch_size=0)
    with pytest.raises(tr.InputError, match=r"measure: Clicks cannot estimate nDCG@10.*Use DCG"):
        DirectRetrievalLoss(model, from_clicks=True)
    with pytest.raises(tr.InputError, match=r"not linear in the labels.*gradient_limit=None"):
        DirectRetrievalLoss(model, "DCG(gain=linear)@10", from_clicks=True)
    DirectRetrievalLoss(model, "DCG(gain=linear)@10", gradient_limit=None, from_clicks=True)


CORPUS = {f"d{i}": text for i, text in enumerate(TEXTS)}
COLLECTION_QRELS = {
    "q1": {"d0": 2, "d2": 1},
    "q2": {"d3": 1},
    "q3": {"d4": 0},  # nothing relevant
}


@pytest.fixture
def collection():
    from twinrank.text import TextCollection

    queries = {"q1": "cat", "q2": "the dog", "q3": "fish"}
    return TextCollection(queries, CORPUS, COLLECTION_QRELS)


def as_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_evaluates_lists_of_a_bi_encoder(model, tmp_path):
    from twinrank.text import Evaluator

    evaluator = Evaluator(as_columns(ROWS), ["nDCG@10", "AP"], name="dev")
    found = evaluator(model, str(tmp_path), epoch=1.5, steps=3)
    queries = embedded(model, [row["query"] for row in ROWS]).detach()
    scores = [
        embedded(model, row["documents"]).detach() @ query
        for row, query in zip(ROWS, queries, strict=True)
    ]
    labels = torch.tensor([grade for row in ROWS for grade in row["labels"]])
    lists = tr.Lists.from_sizes([len(row["labels"]) for row in ROWS])
    expected = tr.evaluate(torch.cat(scores), labels, lists, ["nDCG@10", "AP"]).means
    assert found == pytest.approx({f"dev_{name}": value for name, value in expected.items()})
    assert evaluator.primary_metric == "dev_nDCG@10"
    evaluator(model, str(tmp_path), epoch=2, steps=6)
    lines = (tmp_path / "twinrank_dev_results.csv").read_text().splitlines()
    assert lines[0] == "epoch,steps,nDCG@10,AP"
    assert [line.split(",")[:2] for line in lines[1:]] == [["1.5", "3"], ["2", "6"]]


def test_evaluates_lists_of_a_cross_encoder():
    from twinrank.text import Evaluator

    class Model:
        num_labels = 1
        model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *_: None})()

        def predict(self, pairs, activation_fn, **options):
            lengths = torch.tensor([40.0 + len(text) for _, text in pairs])
            return activation_fn(lengths).numpy()

    found = Evaluator(as_columns(ROWS), "RR")(Model())
    assert found == {"RR": pytest.approx((1 + 1 + 1) / 3)}  # the longest is relevant everywhere
    Model.num_labels = 2
    with pytest.raises(tr.InputError, match="with one output, not one with 2"):
        Evaluator(as_columns(ROWS), "RR")(Model())


def test_searches_a_corpus_and_writes_a_run(model, collection, tmp_path):
    from twinrank.cli import app
    from twinrank.text import RetrievalEvaluator

    measures = ["nDCG@3", "recall_3"]
    evaluator = RetrievalEvaluator(collection, measures, top=3, name="all", convention="trec")
    found = evaluator(model, str(tmp_path))
    run, qrels = tmp_path / "twinrank_all.run", tmp_path / "twinrank_all.qrels"
    again = tr.evaluate_run(run, qrels, measures).means
    assert found == pytest.approx({f"all_{name}": value for name, value in again.items()})
    cosines = embedded(model, ["cat"]) @ embedded(model, TEXTS).T
    first = [line.split()[2] for line in run.read_text().splitlines()[:3]]
    assert first == [f"d{i}" for i in cosines[0].topk(3).indices.tolist()]
    assert "q3" not in run.read_text()
    words = ["evaluate", "--run", str(run), "--qrels", str(qrels), "-m", "nDCG@3"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert f"{again['nDCG@3']:.4f}" in result.output


def test_refuses_what_it_cannot_evaluate(model, collection, tmp_path):
    from twinrank.text import Evaluator, RetrievalEvaluator, TextCollection

    rows = as_columns(ROWS)
    for data, message in (
        ({"query": rows["query"], "labels": rows["labels"]}, "the columns are query, labels"),
        ({**rows, "labels": rows["labels"][:2]}, "3 lists of documents and 2 lists of labels"),
        ({**rows, "labels": [[1], [1], [1]]}, "'cat' has 3 documents but 1 labels"),
        ({**rows, "documents": rows["query"]}, "'cat' has one text"),
        ({**rows, "labels": [[0] * len(x) for x in rows["labels"]]}, "nothing to evaluate"),
    ):
        with pytest.raises(tr.InputError, match=message):
            Evaluator(data)
    with pytest.raises(tr.InputError, match="Did you mean 'nDCG'"):
        Evaluator(rows, ["nDGC@10"])
    with pytest.raises(tr.InputError, match="Recall@1000 needs top=1000 or more, not 100"):
        RetrievalEvaluator(collection, ["Recall@1000"])
    with pytest.raises(tr.InputError, match="needs a SentenceTransformer, not a Linear"):
        RetrievalEvaluator(collection)(torch.nn.Linear(1, 1))
    blanks = TextCollection({"a b": "cat"}, CORPUS, {"a b": {"d0": 1}})
    with pytest.raises(tr.InputError, match="use names without blanks"):
        RetrievalEvaluator(blanks)(model, str(tmp_path))


def made_lists(queries, seed):
    """Documents that share the word of the query are relevant; two of a kind are better."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(queries):
        word, *others = random.choice(WORDS[:6], 4, replace=False)
        texts = [f"{word} {word} the", f"{word} {others[0]} a", f"{others[1]} {others[2]} the"]
        rows.append({"query": f"{word} a", "documents": texts, "labels": [2, 1, 0]})
    return as_columns(rows)


def test_the_trainer_keeps_the_best_model_by_our_measure(model, tmp_path):
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from transformers import EarlyStoppingCallback

    from twinrank.text import DirectRetrievalLoss, Evaluator, RetrievalCollator

    evaluator = Evaluator(made_lists(20, 2), ["nDCG@10", "AP(rel=2)"], name="dev")
    before = evaluator(model)["dev_nDCG@10"]
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(tmp_path / "run"),
            max_steps=9,
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            eval_strategy="steps",
            eval_steps=3,
            save_steps=3,
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_dev_nDCG@10",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=True,
        ),
        train_dataset=datasets.Dataset.from_dict(made_lists(40, 1)),
        eval_dataset=datasets.Dataset.from_dict(made_lists(8, 3)),
        loss=DirectRetrievalLoss(model, mini_batch_size=8),
        data_collator=RetrievalCollator(model.preprocess),
        evaluator=evaluator,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    values = [e["eval_dev_nDCG@10"] for e in trainer.state.log_history if "eval_loss" in e]
    assert trainer.state.best_metric == max(values) > before
    assert evaluator(model)["dev_nDCG@10"] == pytest.approx(max(values))
    folder = tmp_path / "run" / "eval"
    assert len((folder / "twinrank_dev_results.csv").read_text().splitlines()) == len(values) + 1
    assert (folder / "twinrank_dev.run").exists()
    trainer.save_model(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert "<code>twinrank.text.DirectRetrievalLoss</code>" in card
    assert '"temperature": 0.05' in card
    assert "dev_nDCG@10" in card


def test_the_trainer_of_cross_encoders_keeps_the_best_model_too(folder, tmp_path):
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import (
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )

    from twinrank.text import DirectRankingLoss, Evaluator

    torch.manual_seed(0)
    model = CrossEncoder(str(folder), num_labels=1, device="cpu")
    evaluator = Evaluator(made_lists(10, 2), ["RR(rel=2)", "nDCG@10"])
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            str(tmp_path / "run"),
            max_steps=4,
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            eval_strategy="steps",
            eval_steps=2,
            save_steps=2,
            load_best_model_at_end=True,
            metric_for_best_model="eval_RR(rel=2)",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=True,
        ),
        train_dataset=datasets.Dataset.from_dict(made_lists(16, 1)),
        loss=DirectRankingLoss(model),
        evaluator=evaluator,
    )
    trainer.train()
    values = [e["eval_RR(rel=2)"] for e in trainer.state.log_history if "eval_RR(rel=2)" in e]
    assert len(values) == 2
    assert trainer.state.best_metric == max(values)
    assert evaluator(model)["RR(rel=2)"] == pytest.approx(max(values))


@pytest.mark.slow
def test_the_example_runs(monkeypatch, capsys):
    pytest.importorskip("datasets")
    path = Path(__file__).parents[1] / "examples" / "text_retrieval.py"
    found = importlib.util.spec_from_file_location("text_retrieval", path)
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    monkeypatch.setattr(sys, "argv", ["text_retrieval.py", "--quick"])
    example.main()
    printed = capsys.readouterr().out
    for name in ("not fine-tuned", "DirectRetrievalLoss", "MultipleNegativesRankingLoss"):
        assert name in printed


DISTRIBUTED = """
import sys
from pathlib import Path
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.parallel import DistributedDataParallel
from test_retrieval import ROWS, collated, exact

folder, size = Path(sys.argv[1]), int(sys.argv[2]) or None
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = SentenceTransformer(str(folder), device="cpu").eval()
loss = exact(model, mini_batch_size=size, gather_across_devices=True)
loss.model = DistributedDataParallel(model, find_unused_parameters=True)
share = ROWS[:1] if rank == 0 else ROWS[1:]
loss(*collated(model, share)).backward()
torch.save([p.grad for p in model.parameters()], folder / f"{rank}.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 2])
def test_two_real_processes_are_like_one(model, tmp_path, size):
    model.save(str(tmp_path))
    script = tmp_path / "work.py"
    script.write_text(DISTRIBUTED)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, *launch, str(script), str(tmp_path), str(size)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    exact(model)(*collated(model)).backward()
    for rank in (0, 1):
        for both, alone in zip(
            torch.load(tmp_path / f"{rank}.pt"), model.parameters(), strict=True
        ):
            if alone.grad is not None:
                torch.testing.assert_close(both, alone.grad, rtol=1e-3, atol=1e-6)
