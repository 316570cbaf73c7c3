"""The loss for sentence-transformers: a tiny transformer with random weights, made here."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import twinrank as tr

if importlib.util.find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence-transformers", allow_module_level=True)

# sentence-transformers is imported where it is used: that takes seconds, and every worker of the
# tests reads this file.
os.environ["HF_HUB_OFFLINE"] = "1"  # before that: nothing is fetched

from tiny_bert import WORDS, save_tiny_bert
from twinrank.support.arrays import device_path
from twinrank.text import DirectRankingLoss, DistillRankingLoss

EXAMPLE = Path(__file__).parents[1] / "examples" / "text_reranking.py"
QUERIES = ["cat", "the dog", "fish"]
DOCUMENTS = [["a cat runs", "bad dog", "fish"], ["good dog"], ["fish eats", "bird", "the", "a cat"]]
LABELS = [torch.tensor([2, 0, 1]), torch.tensor([1]), torch.tensor([1, 0, 0, 3])]


def built(folder, outputs=1):
    return save_tiny_bert(folder, "BertForSequenceClassification", num_labels=outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return built(tmp_path_factory.mktemp("text") / "tiny")


def loaded(folder):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu").eval()  # no dropout, until somebody trains it


@pytest.fixture
def model(folder):
    return loaded(folder)


def exact(model, *arguments, **options):
    """The measure alone, on exact ranks, in which nothing is random."""
    settings = {"perturbation": 0, "samples": 1, "listnet_weight": 0, **options}
    return DirectRankingLoss(model, *arguments, **settings)


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("prompt", [None, "good "])
@pytest.mark.parametrize(("measure", "strategy"), [("nDCG@10", "type3"), ("AP", "type1")])
def test_is_the_direct_loss_of_the_scores(model, measure, strategy, prompt):
    loss = exact(model, measure, strategy, alpha=2.0)([QUERIES, DOCUMENTS], LABELS, prompt=prompt)
    pairs = [(q, text) for q, texts in zip(QUERIES, DOCUMENTS, strict=True) for text in texts]
    scores = model(model.preprocess(pairs, prompt=prompt))["scores"].view(-1)
    expected = tr.DirectLoss(measure, strategy, alpha=2.0)(
        scores, torch.cat(LABELS), tr.Lists.from_sizes([3, 1, 4])
    )
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    ours, theirs = gradient(model, loss), gradient(model, expected)
    assert ours.abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_credits_of_clicks_are_labels(model):
    credits = [torch.tensor([0.0, 2.5, 0.4]), torch.tensor([0.3]), torch.tensor([0.0, 0.1, 1.2, 0])]
    measure = "DCG(gain=linear)@10"
    loss = exact(model, measure, "type3", from_clicks=True)([QUERIES, DOCUMENTS], credits)
    pairs = [(q, text) for q, texts in zip(QUERIES, DOCUMENTS, strict=True) for text in texts]
    scores = model(model.preprocess(pairs))["scores"].view(-1)
    lists = tr.Lists.from_sizes([3, 1, 4])
    expected = tr.DirectLoss(measure, "type3")(scores, torch.cat(credits), lists)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(
        gradient(model, loss), gradient(model, expected), rtol=1e-3, atol=1e-6
    )
    with pytest.raises(tr.InputError, match=r"measure: Clicks cannot estimate nDCG@10.*Use DCG"):
        DirectRankingLoss(model, from_clicks=True)
    with pytest.raises(tr.InputError, match=r"ListNet's loss is not linear.*listnet_weight=0"):
        DirectRankingLoss(model, measure, from_clicks=True)
    with pytest.raises(tr.InputError, match="DistillRankingLoss scales its labels"):
        DistillRankingLoss(model, measure, from_clicks=True)


def test_an_activation_comes_before_the_ranks(model):
    inputs = [QUERIES, DOCUMENTS]
    steep = exact(model, activation_fn=torch.nn.Sigmoid(), alpha=4.0)(inputs, LABELS)
    plain = exact(model, alpha=4.0)(inputs, LABELS)
    assert steep.item() == pytest.approx(plain.item())  # the order is the same
    assert not torch.allclose(gradient(model, steep), gradient(model, plain), rtol=0.1)


@pytest.mark.parametrize("size", [1, 3, 100, 0, -1])
def test_the_mini_batch_does_not_matter(model, size):
    inputs = [QUERIES, DOCUMENTS]
    whole = exact(model)(inputs, LABELS)
    cut = exact(model, mini_batch_size=size)(inputs, LABELS)
    assert cut.item() == pytest.approx(whole.item(), abs=1e-6)
    torch.testing.assert_close(gradient(model, cut), gradient(model, whole), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("size", "passes"), [(None, [3, 3, 2]), (5, [5, 3]), (0, [8]), (-1, [8])])
def test_the_mini_batch_is_what_the_model_gets(model, size, passes):
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0]["input_ids"])))
    exact(model, mini_batch_size=size)([QUERIES, DOCUMENTS], LABELS)
    assert seen == passes


def _kept(loss, *arguments):
    """The loss, and how many numbers autograd keeps for its backward pass."""
    numbers = 0

    def keep(tensor):
        nonlocal numbers
        numbers += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        return loss(*arguments), numbers


def test_recomputing_holds_less_and_gives_the_same(model):
    model.train()  # dropout must fall alike in both passes
    found = {}
    for recompute in (False, True):
        torch.manual_seed(1)
        loss = exact(model, mini_batch_size=3, recompute=recompute)
        value, numbers = _kept(loss, [QUERIES, DOCUMENTS], LABELS)
        found[recompute] = value.item(), numbers, gradient(model, value)
    assert found[True][0] == found[False][0]
    assert found[True][1] < found[False][1] / 50
    torch.testing.assert_close(found[True][2], found[False][2])
    with torch.no_grad():  # as the trainer evaluates
        assert exact(model, recompute=True)([QUERIES, DOCUMENTS], LABELS).isfinite()


def test_a_query_with_nothing_relevant_teaches_nothing(model):
    nothing = torch.zeros(1)
    both = exact(model)([QUERIES, DOCUMENTS], [LABELS[0], nothing, LABELS[2]])
    alone = exact(model)([QUERIES[::2], DOCUMENTS[::2]], LABELS[::2])
    assert both.item() == pytest.approx(alone.item(), abs=1e-6)
    empty = exact(model)([QUERIES[1:2], DOCUMENTS[1:2]], [nothing])
    assert empty.item() == 0
    assert gradient(model, empty).abs().max() == 0


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ([QUERIES, DOCUMENTS], None, "got no labels"),
        ([QUERIES, DOCUMENTS], torch.tensor([1, 0, 1]), "got one label for each query"),
        ([QUERIES, DOCUMENTS], LABELS[:2], "3 queries, 3 lists of documents and 2 lists"),
        ([QUERIES, DOCUMENTS], [*LABELS[:2], LABELS[2][:3]], r"Query 2 .*'fish'.* 4 documents"),
        ([QUERIES, DOCUMENTS], [LABELS[0][:, None], *LABELS[1:]], r"labels of shape \(3, 1\)"),
        ([QUERIES], LABELS, "two columns besides the labels.*not 1"),
        ([QUERIES, QUERIES], LABELS, "a list of documents for each query, not one text"),
        (
            [["dog", "cat"], [["a"], []]],
            [torch.ones(1), torch.ones(0)],
            r"1 .*'cat'.* no documents",
        ),
        ([[], []], [], "no queries"),
        ([["cat"], [["a"]]], [torch.tensor([float("nan")])], "labels are not finite"),
    ],
)
def test_refuses_columns_that_do_not_fit(model, inputs, labels, message):
    with pytest.raises(tr.InputError, match=message):
        DirectRankingLoss(model)(inputs, labels)


def test_refuses_other_models(tmp_path):
    two = loaded(built(tmp_path / "two", outputs=2))
    with pytest.raises(tr.InputError, match="one output, not one with 2"):
        DirectRankingLoss(two)
    with pytest.raises(tr.InputError, match="one output, not a Linear"):
        DirectRankingLoss(torch.nn.Linear(2, 1))


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.delitem(sys.modules, "twinrank.text")
    with pytest.raises(tr.InputError, match=r"pip install 'twinrank\[text\]'"):
        importlib.import_module("twinrank.text")


def test_refuses_logits_that_are_not_numbers(model):
    with torch.no_grad():
        model.model.classifier.bias.fill_(float("nan"))
    with pytest.raises(
        tr.InputError, match=r"query .cat. and document .* is not finite; the training diverged"
    ):
        DirectRankingLoss(model)([QUERIES, DOCUMENTS], LABELS)
    with device_path("torch"):  # as on a GPU
        assert DirectRankingLoss(model, validate=False)([QUERIES, DOCUMENTS], LABELS).isnan()


def test_listnet_is_that_of_sentence_transformers(model):
    from sentence_transformers.cross_encoder.losses import ListNetLoss

    inputs, labels = [QUERIES[::2], DOCUMENTS[::2]], LABELS[::2]  # all with several documents
    both = exact(model, listnet_weight=2.5)(inputs, labels)
    measure, listnet = exact(model)(inputs, labels), ListNetLoss(model)(inputs, labels)
    torch.testing.assert_close(
        gradient(model, both), gradient(model, measure) + 2.5 * gradient(model, listnet)
    )
    for weight in (-1, "x", float("nan"), True):
        with pytest.raises(tr.InputError, match="listnet_weight must be a number of at least 0"):
            DirectRankingLoss(model, listnet_weight=weight)


def test_a_teacher_gives_grades_whatever_its_scale(model):
    inputs = [QUERIES, DOCUMENTS]
    teacher = [torch.tensor([1.5, -2.5, -0.5]), torch.tensor([3.0]), torch.tensor([9.0, 1, 1, 5])]
    grades = [torch.tensor([4.0, 0, 2]), torch.zeros(1), torch.tensor([4.0, 0, 0, 2])]
    settings = {"perturbation": 0, "samples": 1}
    distilled = DistillRankingLoss(model, **settings)(inputs, teacher)
    expected = DirectRankingLoss(model, **settings)(inputs, grades)
    torch.testing.assert_close(distilled, expected)
    torch.testing.assert_close(gradient(model, distilled), gradient(model, expected))
    other = DistillRankingLoss(model, **settings)(inputs, [5 * t - 3 for t in teacher])
    torch.testing.assert_close(other, expected)
    assert DistillRankingLoss(model, top_grade=2).get_config_dict()["top_grade"] == 2
    with pytest.raises(tr.InputError, match="top_grade must be a positive number"):
        DistillRankingLoss(model, top_grade=0)
    with pytest.raises(tr.InputError, match="labels are not finite"):
        DistillRankingLoss(model)([["cat"], [["a", "b"]]], [torch.tensor([1, float("inf")])])


def made_lists(queries, seed):
    """The more often a document says "good", the better."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, (queries, 5)).tolist()
    fill = [w for w in WORDS if w != "good"]
    documents = [
        [" ".join(random.permutation(["good"] * n + [*random.choice(fill, 4 - n)])) for n in row]
        for row in labels
    ]
    return {
        "query": [str(word) for word in random.choice(fill, queries)],
        "documents": documents,
        "labels": labels,
    }


def ndcg(model, data):
    pairs = [(q, d) for q, ds in zip(data["query"], data["documents"], strict=True) for d in ds]
    scores = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    lists = tr.Lists.from_sizes([5] * len(data["query"]))
    return np.nanmean(tr.measure("nDCG")(scores, np.concatenate(data["labels"]), lists))


@pytest.mark.parametrize("recompute", [False, True])
def test_the_trainer_trains_with_it(model, tmp_path, recompute):
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.cross_encoder import (
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )

    data = made_lists(48, seed=1)
    data["documents"][0].pop()  # lists of several lengths
    data["labels"][0].pop()
    loss = DirectRankingLoss(model, mini_batch_size=-1, recompute=recompute)
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            str(tmp_path / "run"),
            max_steps=24,
            per_device_train_batch_size=8,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            logging_steps=8,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=True,
        ),
        train_dataset=datasets.Dataset.from_dict(data),
        eval_dataset=datasets.Dataset.from_dict(made_lists(16, seed=2)),
        loss=loss,
    )
    test = made_lists(40, seed=3)
    before, untrained = trainer.evaluate()["eval_loss"], ndcg(model, test)
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[-1] < logged[0]
    assert trainer.evaluate()["eval_loss"] < before - 0.02

    assert ndcg(model, test) > max(0.95, untrained + 0.1)

    trainer.save_model(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert "<code>twinrank.text.DirectRankingLoss</code>" in card
    assert "yu2020optimize" in card
    assert '"measure": "nDCG@10"' in card


def test_describes_itself_as_their_losses_do(model):
    from sentence_transformers.cross_encoder.losses import LambdaLoss

    ours, other = DirectRankingLoss(model, "AP"), LambdaLoss(model)
    shared = {"activation_fn", "mini_batch_size"}
    assert shared <= set(ours.get_config_dict()) & set(other.get_config_dict())
    assert ours.get_config_dict()["measure"] == "AP"
    assert ours.get_config_dict()["activation_fn"] == other.get_config_dict()["activation_fn"]
    assert tr.text.DirectRankingLoss is DirectRankingLoss


def test_the_example_runs(monkeypatch, capsys):
    pytest.importorskip("datasets")
    found = importlib.util.spec_from_file_location("text_reranking", EXAMPLE)
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    monkeypatch.setattr(sys, "argv", ["text_reranking.py", "--quick"])
    example.main()
    printed = capsys.readouterr().out
    for name in ("not fine-tuned", "DirectRankingLoss nDCG@10", "LambdaLoss", "ListNetLoss"):
        assert name in printed
