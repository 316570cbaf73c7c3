"""Click models, interleaving, and logs of OpenSearch User Behavior Insights."""

import json

import numpy as np
import pytest

import twinrank as tr
from test_clicks import made_data, run  # noqa: F401
from twinrank.clicks.click_models import _fit_sequential, _Lists, _sequential
from twinrank.clicks.simulation import click_probability


def simulated(model, impressions=5000, **options):
    return tr.simulate_clicks(
        made_data(15, 8), logger="good", temperature=1.0, model=model, impressions=impressions,
        cutoff=6, **options,
    )  # fmt: skip


def trusting(position):
    """α and β of simulated users who trust positions: a click has the probability α · r + β.

    They see position k with probability 1/k, and click an irrelevant document with ½ · 1/k.
    """
    return 1 / position - 0.5 / position**2, 0.5 / position**2


@pytest.mark.parametrize("model", ["position", "cascade", "dependent"])
def test_the_model_that_made_a_log_describes_it_best(model):
    found = tr.compare_click_models(simulated(model))
    assert found.best == model
    assert (found.doubt == "") == (model == "position")
    assert f"{model} describes the log best" in str(found)


def test_trust_bias_is_found_in_a_long_log():
    found = tr.compare_click_models(simulated("trust", 16_000))
    assert found.best == "trust"
    assert "The trust click model describes this log better" in found.doubt


def test_sequential_probabilities_are_those_of_a_direct_computation():
    log = simulated("dependent", 60)
    lists = _Lists.of(log)
    fit = _fit_sequential(lists, stops=False)
    predicted = _sequential(fit, lists)
    for row in range(len(predicted)):
        reads = 1.0
        for place in np.flatnonzero(lists.shown[row]):
            r = fit.relevance[lists.document[row, place]]
            assert predicted[row, place] == pytest.approx(reads * r)
            if lists.clicked[row, place]:
                reads = fit.high[lists.position[row, place]]
            else:
                reads = reads * (1 - r) / (reads * (1 - r) + 1 - reads)


def test_parameters_of_the_dependent_model_are_recovered():
    log = simulated("dependent", 30_000)
    fit = _fit_sequential(_Lists.of(log), stops=False)
    np.testing.assert_allclose(fit.high[:4], 1 / np.arange(2, 6), atol=0.04)
    relevance = click_probability(log.data, 0.1)
    shown = log.per_document() > 1000
    assert np.corrcoef(fit.relevance[shown], relevance[shown])[0, 1] > 0.97


def test_simulated_users_follow_the_models():
    data = made_data(5, 6)
    options = {"impressions": 20_000, "logger": "good", "noise": 0.2}
    relevance = click_probability(data, 0.2)
    log = tr.simulate_clicks(data, model="trust", **options)
    alpha, beta = trusting(log.position)
    clicks = log.per_document(log.clicked)
    expected = log.per_document(alpha * relevance[log.document] + beta)
    assert (np.abs(clicks - expected) < 5 * np.sqrt(expected + 1)).all()
    log = tr.simulate_clicks(data, model="cascade", **options)
    per_impression = np.bincount(log.impression, log.clicked)
    assert per_impression.max() == 1
    first = log.position == 1
    rate = log.per_document(log.clicked * first) / np.maximum(log.per_document(first), 1)
    top = log.per_document(first) > 0
    np.testing.assert_allclose(rate[top], relevance[top], atol=0.04)
    log = tr.simulate_clicks(data, model="dependent", eta=0, **options)  # users never stop
    rate = log.per_document(log.clicked) / np.maximum(log.per_document(), 1)
    np.testing.assert_allclose(rate, relevance, atol=0.04)


def test_logs_that_no_model_can_describe_are_refused():
    data = made_data(4, 6)
    once = tr.simulate_clicks(data, impressions=1)
    with pytest.raises(tr.InputError, match="several impressions"):
        tr.compare_click_models(once)
    log = tr.simulate_clicks(data, impressions=500)
    silent = tr.ClickLog(**{**vars_of(log), "clicked": np.zeros(log.position.size, bool)})
    with pytest.raises(tr.InputError, match="need clicks"):
        tr.compare_click_models(silent)


def vars_of(log):
    return {name: getattr(log, name) for name in type(log).__dataclass_fields__}


def test_other_models_are_never_fitted_silently():
    with pytest.warns(tr.DataWarning, match="cascade click model .* A/B test"):
        tr.estimate_propensities(simulated("cascade"), resamples=0)


def test_inspect_names_the_click_model(
    run,  # noqa: F811
    tmp_path,
):
    simulated("cascade").save(tmp_path / "log.csv")
    code, out, err = run("inspect", "--clicks", "log.csv")
    assert code == 0
    assert "cascade describes the log best" in out
    assert "confirm them by an A/B test" in " ".join((out + err).split())
    _, out, _ = run("inspect", "--clicks", "log.csv", "--json")
    assert json.loads(out)["click_models"]["best"] == "cascade"
    code, _, err = run("simulate-clicks", "--model", "browsing")
    assert code == 2
    assert "position, trust, cascade" in err


def test_trust_bias_is_corrected_without_bias():
    """The mean of estimates over logs is the true measure; without the correction it is not."""
    data = made_data(6, 6)
    relevance = click_probability(data, 0.1)
    truth = tr.evaluate(data.X[:, 1], relevance, data.lists, ["DCG(gain=linear)@3"])
    alpha, beta = trusting(np.arange(1, 7))
    known, ignored = tr.Propensities(alpha, trust=beta), tr.Propensities(alpha + beta)
    draws = {known: [], ignored: []}
    for seed in range(150):
        log = tr.simulate_clicks(
            data, model="trust", impressions=600, cutoff=None, random_state=seed
        )
        for each, values in draws.items():
            found = tr.evaluate_log(
                data.X[:, 1], log, "DCG(gain=linear)@3", each, average="queries", resamples=1
            )
            values.append(found.estimates["ranker"]["DCG(gain=linear)@3"].value)
    distance = {}
    for each, values in draws.items():
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        distance[each] = abs(np.mean(values) - truth["DCG(gain=linear)@3"]) / error
    assert distance[known] < 3
    assert distance[ignored] > 10


def test_trust_bias_in_training_data():
    log = simulated("trust")
    alpha, beta = trusting(np.arange(1, 7))
    credits = log.to_dataset(tr.Propensities(alpha, trust=beta), clip=0)
    clicks = log.per_document(log.clicked) - log.per_document(beta[log.position - 1])
    exposure = log.per_document(alpha[log.position - 1])
    shown = exposure > 0
    expected = clicks[shown] / exposure[shown]
    assert credits.y.min() >= 0
    for query, y in enumerate(np.split(credits.y, credits.lists.offsets[1:-1])):
        own = expected[credits.lists.offsets[query] : credits.lists.offsets[query + 1]]
        np.testing.assert_allclose(y, own - min(own.min(), 0), atol=1e-5)


def test_trust_is_checked_and_saved(tmp_path):
    known = tr.Propensities([0.8, 0.5], trust=[0.2, 0.1])
    known.save(tmp_path / "p.json")
    assert tr.Propensities.load(tmp_path / "p.json") == known
    assert "trust" in str(known)
    with pytest.raises(tr.InputError, match="2 values but trust has 1"):
        tr.Propensities([0.8, 0.5], trust=[0.2])
    with pytest.raises(tr.InputError, match=r"trust of position 1 is 0\.3.* at most 1"):
        tr.Propensities([0.8, 0.5], trust=[0.3, 0.1])


def test_team_draft_by_hand():
    drawn = {
        (found.documents, found.teams)
        for found in (tr.interleave("xyz", "xwy", 3, seed) for seed in range(40))
    }
    # Who picks first gets x. The other one picks its best of the rest; then the next round.
    assert drawn == {
        (("x", "w", "y"), ("a", "b", "a")),
        (("x", "w", "y"), ("a", "b", "b")),
        (("x", "y", "w"), ("b", "a", "b")),
        (("x", "y", "z"), ("b", "a", "a")),
    }
    found = tr.Interleaving(("x", "w", "y"), ("a", "b", "a"))
    assert found.credit(["x", "w", "w", "y"]) == (2, 1)
    with pytest.raises(tr.InputError, match="not in the interleaved list"):
        found.credit(["q"])
    assert tr.interleave("ab", "ba", 10).documents in (("a", "b"), ("b", "a"))


def test_random_clicks_favour_no_ranking():
    rng = np.random.default_rng(0)
    outcomes = []
    for _ in range(2000):
        found = tr.interleave(range(10), range(9, -1, -1), 5, rng)
        outcomes.append(found.credit([d for d in found.documents if rng.random() < 0.3]))
    result = tr.interleaving_test(outcomes)
    assert result.interval[0] < 0.5 < result.interval[1]
    assert result.wins_a + result.wins_b + result.ties == 2000


def test_the_better_ranking_wins():
    rng = np.random.default_rng(1)
    best, worst = list(range(10)), list(range(9, -1, -1))
    outcomes = []
    for _ in range(300):
        found = tr.interleave(worst, best, 6, rng)
        outcomes.append(found.credit([d for d in found.documents if rng.random() < 0.5 / (d + 1)]))
    result = tr.interleaving_test(outcomes)
    assert result.p_value < 0.01
    assert result.preference > 0.6


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: tr.interleave("aa", "ab"), "Ranking a has a document twice"),
        (lambda: tr.interleave("ab", "ab", 0), "length must be a whole number of at least 1"),
        (lambda: tr.interleaving_test([(1, 1)]), "No impression has a winner"),
        (lambda: tr.interleaving_test([1, 2]), "must be pairs"),
    ],
)
def test_bad_interleavings_are_refused(call, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        call()


def event(query, document, action="click"):
    attributes = {"object": {"object_id": document, "object_id_field": "sku"}}
    return {"query_id": query, "action_name": action, "event_attributes": attributes}


QUERIES = [
    {"query_id": "q1", "user_query": "jazz", "query_response_hit_ids": ["a", "b", "c"]},
    {"query_id": "q2", "user_query": "jazz", "query_response_hit_ids": ["b", "a"]},
    {"query_id": "q2", "user_query": "jazz", "query_response_hit_ids": ["c"]},  # the next page
    {"query_id": "q3", "user_query": "nothing"},
]
EVENTS = [event("q1", "b"), event("q1", "b"), event("q2", "c"), event("q2", "a", "view"),
          event("q9", "a")]  # fmt: skip


def written(folder, queries, events):
    for name, rows in (("queries", queries), ("events", events)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "queries", folder / "events"


@pytest.mark.parametrize("wrapped", [False, True])
def test_user_behavior_insights(tmp_path, wrapped):
    rows = [[{"_source": row} if wrapped else row for row in part] for part in (QUERIES, EVENTS)]
    log = tr.load_ubi(*written(tmp_path, *rows))
    assert repr(log) == "ClickLog(2 impressions, 1 query, 6 rows, 2 clicks)"
    shown = list(zip(log.docids[log.document], log.position, log.clicked, strict=True))
    assert shown == [
        ("a", 1, False), ("b", 2, True), ("c", 3, False),
        ("b", 1, False), ("a", 2, False), ("c", 3, True),
    ]  # fmt: skip
    assert tr.load_ubi(*written(tmp_path, *rows), positions=2).clicked.sum() == 1
    assert tr.load_ubi(*written(tmp_path, *rows), action="view").clicked.sum() == 1


@pytest.mark.parametrize(
    ("queries", "events", "options", "complaint"),
    [
        ([{"user_query": "x"}], EVENTS, {}, "queries: line 1 has no query_id"),
        ([{"query_id": "x"}], EVENTS, {}, "queries: line 1 has no user_query"),
        (QUERIES[3:], EVENTS, {}, "no entry has documents"),
        (QUERIES, EVENTS, {"action": "clik"}, "click"),
        (QUERIES, [{"query_id": "q1", "action_name": "click"}], {}, "line 1 has no event_attr"),
        (QUERIES, [[]], {}, "events: line 1 is not a JSON object"),
        (QUERIES, EVENTS, {"positions": 0}, "positions must be a whole number of at least 1"),
    ],
)
def test_bad_insights_are_named(tmp_path, queries, events, options, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        tr.load_ubi(*written(tmp_path, queries, events), **options)


def test_missing_files_of_insights_are_named(tmp_path):
    with pytest.raises(tr.FileError, match="missing"):
        tr.load_ubi(tmp_path / "missing", tmp_path / "events")


@pytest.mark.parametrize(
    ("queries", "events", "complaint"),
    [
        ([{"_source": None}], EVENTS, "queries: line 1 is not a JSON object"),
        ([{"_source": []}], EVENTS, "queries: line 1 is not a JSON object"),
        ([{**QUERIES[0], "query_response_hit_ids": 5}], EVENTS, "line 1: query_response_hit_ids"),
        ([{**QUERIES[0], "query_response_hit_ids": "xy"}], EVENTS, "must be a list, not 'xy'"),
        ([{**QUERIES[0], "user_query": {}}], EVENTS, "line 1: user_query must be text"),
        (QUERIES, [{**EVENTS[0], "event_attributes": "s"}], "line 1: event_attributes must be"),
        (QUERIES, [{**EVENTS[0], "event_attributes": {"object": "s"}}], "line 1: object must be"),
        (QUERIES, [], "events has no events"),
    ],
)
def test_insights_of_wrong_types_are_named(tmp_path, queries, events, complaint):
    with pytest.raises(tr.InputError, match=complaint):
        tr.load_ubi(*written(tmp_path, queries, events))


def test_insights_that_are_not_utf_8_and_positions_that_are_not_whole(tmp_path):
    files = written(tmp_path, QUERIES, EVENTS)
    for positions in ("3", 1.5):
        with pytest.raises(tr.InputError, match="positions must be a whole number"):
            tr.load_ubi(*files, positions=positions)
    files[0].write_bytes(b'{"query_id": "\xff"}\n')
    with pytest.raises(tr.InputError, match="queries: line 1 is not JSON"):
        tr.load_ubi(*files)


def test_arguments_of_other_types_are_named():
    for outcomes in ([(1, 0), (1,)], [("1", "0")], "ab"):
        with pytest.raises(tr.InputError, match="outcomes must be"):
            tr.interleaving_test(outcomes)
    with pytest.raises(tr.InputError, match="length must be a whole number"):
        tr.interleave("ab", "ba", length="3")
    for trust in ("ab", 3, [[0.1], [0.1, 0.2]]):
        with pytest.raises(tr.InputError, match="trust"):
            tr.Propensities([0.9, 0.5], trust=trust)
    log = tr.simulate_clicks(tr.synthetic_web_search(queries=5), impressions=50)
    with pytest.raises(tr.InputError, match="rows must be a whole number"):
        tr.compare_click_models(log, rows="x")
