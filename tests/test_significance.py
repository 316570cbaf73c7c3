"""Paired tests against formulas and scipy; systems side by side."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import twinrank as tr
from twinrank.core.lists import Lists
from twinrank.evaluation import significance
from twinrank.evaluation.metric_plots import draw_wins
from twinrank.evaluation.significance import differences, holm
from twinrank.support.errors import InputError


def two_systems(seed, lists=40, better=0.05):
    rng = np.random.default_rng(seed)
    a = rng.random(lists)
    return a, a - better + 0.2 * rng.standard_normal(lists)


# One pair of systems


def signed_ranks(difference):
    """Wilcoxon's p by its definition: every sign as likely as the other, no ties."""
    difference = difference[difference != 0]
    ranks = stats.rankdata(np.abs(difference))
    total = ranks[difference > 0].sum()
    sums = np.zeros(1)
    for rank in ranks:
        sums = np.concatenate([sums, sums + rank])
    return min(1.0, 2 * min((sums <= total + 1e-9).mean(), (sums >= total - 1e-9).mean()))


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon(seed):
    a, b = two_systems(seed, lists=12)
    b[0] = a[0]  # no difference
    assert tr.p_value(a, b) == pytest.approx(signed_ranks(a - b))
    a, b = two_systems(seed, lists=500)
    assert tr.p_value(a, b) == pytest.approx(stats.wilcoxon(a, b).pvalue)


@pytest.mark.parametrize("seed", range(6))
def test_paired_t(seed):
    a, b = two_systems(seed)
    d = a - b
    t = d.mean() / (d.std(ddof=1) / math.sqrt(d.size))
    expected = 2 * stats.t.sf(abs(t), d.size - 1)
    assert tr.p_value(a, b, "t") == pytest.approx(expected)
    assert tr.p_value(a, b, "t") == pytest.approx(stats.ttest_rel(a, b).pvalue)


@pytest.mark.parametrize("lists", [2, 3, 7, 10, 13])
def test_permutation_of_few_lists_is_exact(lists):
    a, b = two_systems(lists, lists)
    d = np.round(a - b, 2)
    sums = [np.dot(signs, d) for signs in itertools.product([1, -1], repeat=lists)]
    expected = np.mean([abs(one) >= abs(d.sum()) - 1e-12 for one in sums])
    assert tr.p_value(d, np.zeros(lists), "permutation") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_permutation_of_many_lists(seed):
    a, b = two_systems(seed, lists=200, better=0.02)
    found = tr.p_value(a, b, "permutation", random_state=seed)
    theirs = stats.permutation_test(
        (a, b), lambda x, y, axis: (x - y).mean(axis=axis), permutation_type="samples",
        n_resamples=9999, rng=np.random.default_rng(seed),
    ).pvalue  # fmt: skip
    assert found == pytest.approx(theirs, abs=0.02)
    assert found == pytest.approx(tr.p_value(a, b, "t"), abs=0.02)
    assert found == tr.p_value(a, b, "permutation", random_state=seed)
    assert tr.p_value(a + 9, b, "permutation") == 1 / 10_000  # never 0


def test_permutation_in_batches(monkeypatch):
    a, b = two_systems(0, lists=100)
    whole = tr.p_value(a, b, "permutation")
    monkeypatch.setattr(significance, "_AT_ONCE", 12_345)
    assert tr.p_value(a, b, "permutation") == pytest.approx(whole, abs=0.02)


@pytest.mark.parametrize("test", ["wilcoxon", "t", "permutation"])
def test_false_alarms_are_as_rare_as_promised(test, monkeypatch):
    monkeypatch.setattr(significance, "RESAMPLES", 499)
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(400):
        a, b = rng.random((2, 30)) ** 2
        alarms += tr.p_value(a, b, test) < 0.1
    assert 20 <= alarms <= 62  # 40 expected


@pytest.mark.parametrize("test", ["wilcoxon", "t", "permutation"])
def test_odd_samples(test):
    assert tr.p_value([], [], test) == 1
    assert tr.p_value([0.5], [0.1], test) == 1
    assert tr.p_value([0.5, 0.5], [0.5, 0.5], test) == 1
    assert tr.p_value([np.nan, 0.5, np.nan], [0.3, 0.2, np.nan], test) == 1
    assert 0 <= tr.p_value([0.5, 0.4], [0.5, 0.1], test) <= 1
    assert tr.p_value([1, 0] * 20, [0, 1] * 20, test) == 1
    same = tr.p_value(np.linspace(0.1, 0.9, 60), np.linspace(0, 0.8, 60), test)  # 0.1 everywhere
    assert same < 1e-3


@pytest.mark.parametrize("test", ["wilcoxon", "t", "permutation"])
@given(st.lists(st.tuples(*[st.floats(0, 1) | st.just(np.nan)] * 2), max_size=30))
@settings(max_examples=30)
def test_p_values_are_chances_and_do_not_depend_on_who_comes_first(test, pairs):
    a, b = np.array(pairs).reshape(-1, 2).T
    p = tr.p_value(a, b, test)
    assert 0 <= p <= 1
    assert p == pytest.approx(tr.p_value(b, a, test), abs=0.02)


def test_rounding_errors_are_no_difference():
    a = np.array([0.1 + 0.2, 0.3, 0.7, 1e-20])
    b = np.array([0.3, 0.1 + 0.2, 0.7, 0.0])
    assert not differences(a, b).any()
    assert tr.p_value(a, b) == 1
    assert differences([1e-200, 3e-200], [0.0, 1e-200]).tolist() == pytest.approx([1e-200, 2e-200])


def test_holm():
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_by_its_definition(p):
    """The i-th smallest is rejected at α if every smaller one is, and p ≤ α / (m − i)."""
    corrected = holm(p)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for i, which in enumerate(sorted(range(len(p)), key=lambda j: p[j])):
            if p[which] * (len(p) - i) > alpha:
                break
            rejected.add(which)
        assert {i for i, q in enumerate(corrected) if q <= alpha} == rejected


def test_bootstrap_intervals():
    values = np.random.default_rng(0).random(300)
    low, high = tr.confidence_interval(values)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=9999, rng=np.random.default_rng(1)
    ).confidence_interval
    assert (low, high) == pytest.approx(tuple(theirs), abs=3e-3)
    half = 1.96 * values.std(ddof=1) / math.sqrt(values.size)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=3e-3)
    narrow = tr.confidence_interval(values, 0.5)
    assert low < narrow[0] < values.mean() < narrow[1] < high
    with_nan = np.append(values, [np.nan] * 50)
    assert tr.confidence_interval(with_nan) == (low, high)
    assert tr.confidence_interval(values) == (low, high)


def test_bootstrap_intervals_of_odd_samples():
    assert tr.confidence_interval([0.5]) == (0.5, 0.5)
    assert tr.confidence_interval([0.5, 0.5, np.nan]) == (0.5, 0.5)
    assert np.isnan(tr.confidence_interval([])).all()
    with pytest.raises(InputError, match="between 0 and 1, not 95"):
        tr.confidence_interval([0.5], level=95)


def test_the_interval_covers_the_mean_as_often_as_promised(monkeypatch):
    monkeypatch.setattr(significance, "RESAMPLES", 499)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        low, high = tr.confidence_interval(rng.random(50), 0.9)
        covered += low <= 0.5 <= high
    assert 250 <= covered <= 288  # 270 expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([1, 2], [1, 2], "wilcoxn"), "Unknown test 'wilcoxn'. Did you mean 'wilcoxon'"),
        (([1, 2, 3], [1, 2]), r"a and b have shapes \(3,\) and \(2,\)"),
        (([[1, 2]], [[1, 2]]), "for the same lists"),
        (([np.inf, 1], [1, 2]), "must be finite"),
    ],
)
def test_mistakes(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        tr.p_value(*arguments)


# Several systems


@pytest.fixture
def systems():
    rng = np.random.default_rng(0)
    lists = Lists.from_sizes(rng.integers(2, 30, 80))
    labels = rng.choice(4, lists.documents)
    noise = {"good": 0.5, "fair": 3.0, "bad": 50.0}
    scores = {name: labels + n * rng.standard_normal(lists.documents) for name, n in noise.items()}
    return scores, labels, lists


def test_scores_evaluations_and_values_compare_alike(systems):
    scores, labels, lists = systems
    names = ["nDCG@5", "AP"]
    evaluations = {
        name: tr.evaluate(given_scores, labels, lists, names)
        for name, given_scores in scores.items()
    }
    values = {name: one.values for name, one in evaluations.items()}
    of_scores = tr.compare(scores, labels, lists, names)
    assert of_scores.to_json() == tr.compare(evaluations).to_json()
    assert of_scores.p_values == tr.compare(values).p_values
    assert of_scores.means == {name: one.means for name, one in evaluations.items()}
    assert of_scores.best("AP") == "good"
    assert of_scores.p_values["AP"]["fair"] == tr.p_value(
        values["good"]["AP"], values["fair"]["AP"]
    )
    assert "Convention: twinrank" in str(of_scores)
    assert "Convention" not in str(tr.compare(values))


def test_choices_reach_evaluate(systems):
    found = tr.compare(*systems, ["nDCG@5"], convention="letor", empty="one")
    assert "Convention: letor, changed" in str(found)
    tied = {"a": np.zeros(systems[2].documents)}
    one, other = (
        tr.compare(tied, *systems[1:], ["AP"], random_state=seed).means["a"]["AP"]
        for seed in (1, 2)
    )
    assert one != other


def test_the_best_is_marked_and_worse_ones_have_an_asterisk():
    rng = np.random.default_rng(0)
    a = rng.random(60)
    values = {
        "A": {"M": a},
        "close": {"M": a - 0.001 * rng.standard_normal(60) - 1e-5},
        "worse": {"M": a - 0.2 * rng.random(60)},
    }
    shown = tr.compare(values)
    cells = {row[0].text: row[1] for row in shown.table().rows}
    assert (cells["A"].best, cells["A"].mark) == (True, "")
    assert (cells["close"].best, cells["close"].mark) == (False, "")
    assert (cells["worse"].best, cells["worse"].mark) == (False, "*")
    assert "p < 0.01 (Wilcoxon signed-rank test)" in str(shown)
    strict = tr.compare(values, level=1e-12, test="t", correction="holm")
    assert "p < 1e-12 (paired t-test, Holm correction)" in str(strict)


def test_holm_corrects_for_the_number_of_systems(systems):
    plain = tr.compare(*systems, ["AP"], test="permutation")
    corrected = tr.compare(*systems, ["AP"], test="permutation", correction="holm")
    others = [name for name in systems[0] if name != plain.best("AP")]
    expected = holm([plain.p_values["AP"][name] for name in others])
    assert [corrected.p_values["AP"][name] for name in others] == expected


def test_intervals(systems):
    found = tr.compare(*systems, ["AP"], intervals=True)
    low, high = found.intervals["good"]["AP"]
    assert f" [{low:.3f}, {high:.3f}]" in str(found)
    assert found.to_json()["intervals"]["good"]["AP"] == [low, high]
    assert "95 % bootstrap confidence interval" in found.table().to_latex().replace("\\%", "%")


def test_equal_and_missing_values():
    nothing = {"M": [np.nan, np.nan]}
    found = tr.compare({"A": {"M": [0.5, np.nan]}, "B": {"M": [0.5, np.nan]}, "C": nothing})
    cells = [row[1] for row in found.table().rows]
    assert [cell.best for cell in cells] == [True, True, False]
    assert cells[2].text == "–"
    assert json.dumps(found.to_json(), allow_nan=False)
    alone = tr.compare({"A": nothing}, intervals=True)
    assert "differs" not in str(alone)
    assert json.dumps(alone.to_json(), allow_nan=False)


def test_the_number_of_lists_behind_a_mean_is_stated():
    lists, labels = Lists.from_sizes([2, 2, 2]), np.array([2, 0, 1, 0, 0, 0])
    systems = {"A": np.arange(6.0), "B": -np.arange(6.0)}
    found = tr.compare(systems, labels, lists, ["nDCG@1", "P(rel=2)@1"])
    assert found.lists_in_means == {"nDCG@1": 2, "P(rel=2)@1": 1}
    table = found.table()
    for text in (str(found), table.to_markdown(), table.to_latex(), table.to_html()):
        assert "1 to 2 of 3 lists; the others have no relevant document" in text
    assert found.to_json()["lists_in_means"] == {"nDCG@1": 2, "P(rel=2)@1": 1}
    every = tr.compare(systems, labels, lists, ["nDCG@1"], empty="zero")
    assert "best mean of its column (3 lists)." in str(every)
    alike = tr.compare(systems, labels, lists, ["nDCG@1"])
    assert "(2 of 3 lists; the others" in str(alike)


def test_saving(systems, tmp_path):
    found = tr.compare(*systems, ["nDCG@5", "AP"])
    for suffix, opening in (
        (".txt", "      nDCG@5"),
        (".md", "|  | nDCG@5 | AP |"),
        (".tex", r"\begin{table}"),
        (".html", "<table>"),
        (".json", "{"),
    ):
        path = tmp_path / f"table{suffix}"
        found.save(path)
        assert path.read_text("utf-8").startswith(opening), suffix
    assert json.loads((tmp_path / "table.json").read_text("utf-8")) == found.to_json()
    with pytest.raises(InputError, match=r"Choose a name with suffix \.txt, \.md"):
        found.save(tmp_path / "table.doc")
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_wins_and_losses_are_drawn(systems, tmp_path, suffix):
    found = tr.compare(*systems, ["AP"])
    path = tmp_path / f"wins{suffix}"
    found.draw(path, "good", "bad", "AP")
    assert {".svg": b"<svg", ".png": b"\x89PNG"}[suffix] in path.read_bytes()[:300]
    if suffix == ".svg":
        text = path.read_text("utf-8")
        difference = found.values["good"]["AP"] - found.values["bad"]["AP"]
        assert f"good better: {(difference > 0).sum()}" in text
        assert f"bad better: {(difference < 0).sum()}" in text
        assert "difference in AP" in text


def test_pictures_of_odd_samples(tmp_path):
    draw_wins(tmp_path / "a.svg", [0.5, np.nan, 0.3], [0.5, 0.1, 0.3], ("_a", "b$_c"), "M_1")
    text = (tmp_path / "a.svg").read_text("utf-8")
    assert "2 lists, 2 equal" in text
    assert "_a better: 0" in text
    draw_wins(tmp_path / "b.svg", [0.5], [0.4], ("a", "b"))
    assert "1 list, 0 equal" in (tmp_path / "b.svg").read_text("utf-8")
    with pytest.raises(InputError, match="no list that both"):
        draw_wins(tmp_path / "c.svg", [np.nan], [0.4], ("a", "b"))
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        (({},), {}, "systems must map names to systems"),
        (([[1, 2], [1, 2]],), {}, "systems must map names to systems"),
        (({"A": [1, 2]},), {}, "System 'A' must be scores .with labels and lists., an Evaluation"),
        (({"A": {}},), {}, "System 'A' must be scores"),
        (({"A": [1, 2]}, [1, 0]), {}, "Give both labels and lists for scores"),
        (({"A": {"M": [1]}, "B": {"N": [1]}},), {}, "'A' and 'B' must have the same measures"),
        (
            ({"A": {"M": [1, 2]}, "B": {"M": [1]}},),
            {},
            r"M of 'B' has shape \(1,\) but 'A' has \(2,\)",
        ),
        (({"A": {"M": [1, 2], "N": [1]}},), {}, r"N of 'A' has shape \(1,\)"),
        (({"A": {"M": [1]}},), {"test": "student"}, "Unknown test 'student'"),
        (({"A": {"M": [1]}},), {"correction": "bonferroni"}, "Unknown correction"),
        (({"A": {"M": [1]}},), {"level": 5}, "between 0 and 1, not 5"),
        (({"A": {"M": [1]}},), {"convention": "trec"}, "convention can only be used with scores"),
    ],
)
def test_mistakes_of_comparing(arguments, options, complaint):
    with pytest.raises(InputError, match=complaint):
        tr.compare(*arguments, **options)


def test_evaluations_that_cannot_be_compared(systems):
    scores, labels, lists = systems
    plain = tr.evaluate(scores["good"], labels, lists, "AP")
    letor = tr.evaluate(scores["bad"], labels, lists, "AP", convention="letor")
    with pytest.raises(InputError, match=r"different conventions: twinrank .*; letor"):
        tr.compare({"a": plain, "b": letor})
    ids = [f"q{i}" for i in range(len(lists))]
    one, other = (
        tr.evaluate(scores["good"], labels, lists, "AP", query_ids=order)
        for order in (ids, ids[::-1])
    )
    with pytest.raises(InputError, match="'a' and 'b' are evaluations of different queries"):
        tr.compare({"a": one, "b": other})
    tr.compare({"a": one, "b": plain})


def test_pictures_of_unknown_systems(systems, tmp_path):
    found = tr.compare(*systems, ["AP"])
    with pytest.raises(InputError, match=r"Unknown system 'goood'\. Did you mean 'good'"):
        found.draw(tmp_path / "a.png", "goood", "bad", "AP")
    with pytest.raises(InputError, match="Unknown measure of this comparison 'P'"):
        found.draw(tmp_path / "a.png", "good", "bad", "P")
    with pytest.raises(InputError, match=r"Choose a name with \.png"):
        found.draw(tmp_path / "a.gif", "good", "bad", "AP")
