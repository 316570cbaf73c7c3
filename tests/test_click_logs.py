"""Logs of clicks that are summed while they are read, and the numbers of their rows."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import twinrank as tr
from test_clicks import made_data, propensities, quick
from twinrank.clicks import log_reading, log_sums
from twinrank.clicks.click_credits import CreditOptions, click_credits
from twinrank.clicks.row_numbers import by_first_row, number_pairs, repeated_row


@pytest.fixture(scope="module")
def data():
    return made_data()


@pytest.fixture(scope="module")
def log(data):
    return tr.simulate_clicks(
        data, logger="good", temperature=1.0, impressions=3000, cutoff=4, randomised=0.2
    )


@pytest.fixture(scope="module")
def folder(log, tmp_path_factory):
    """The log as three files, each with whole impressions."""
    path = tmp_path_factory.mktemp("log")
    log.save(path / "all.parquet")
    frame = pl.read_parquet(path / "all.parquet")
    (path / "all.parquet").unlink()
    for number in range(3):
        part = frame.filter(pl.col("impression") // 1000 == number)
        part.write_parquet(path / f"{number}.parquet")
    return path


codes = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@quick
@given(codes, st.integers(1, 10**15))
def test_numbers_are_in_the_order_of_first_appearance(values, factor):
    numbers, first = by_first_row(np.array(values) * factor)
    known = list(dict.fromkeys(values))
    assert numbers.tolist() == [known.index(value) for value in values]
    assert first.tolist() == [values.index(value) for value in known]


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_pairs_are_numbered_by_their_first_code(pairs):
    numbers, first = number_pairs(*np.array(pairs).T)
    known = sorted(dict.fromkeys(pairs), key=lambda pair: pair[0])  # stable
    assert numbers.tolist() == [known.index(pair) for pair in pairs]
    assert first.tolist() == [pairs.index(pair) for pair in known]
    repeated = -1
    for row, pair in reversed(list(enumerate(pairs))):
        if pair in pairs[:row]:
            repeated = row
    assert repeated_row(*np.array(pairs).T) == repeated


@pytest.mark.parametrize("chunk", [1, 5000, 10**6])
@pytest.mark.parametrize("with_data", [True, False])
def test_a_sum_gives_the_same_estimates(folder, data, chunk, with_data, monkeypatch):
    monkeypatch.setattr(log_sums, "CHUNK", chunk)
    own = data if with_data else None
    whole, summed = (tr.load_clicks(folder, own, summed=each) for each in (False, True))
    assert summed.is_sum
    assert not whole.is_sum
    assert repr(summed) == repr(whole)
    assert summed.summary == whole.summary
    order = np.array([whole.docids.tolist().index(each) for each in summed.docids.tolist()])
    for estimator in ("ips", "naive"):
        a, b = (
            click_credits(each, propensities(whole), CreditOptions(estimator))
            for each in (summed, whole)
        )
        np.testing.assert_allclose(a.values, b.values[order], rtol=1e-12)
        assert a.summary.effective_clicks == pytest.approx(b.summary.effective_clicks)
    np.testing.assert_allclose(
        tr.estimate_propensities(summed, resamples=0).values,
        tr.estimate_propensities(whole, resamples=0).values, rtol=1e-5,
    )  # fmt: skip
    a, b = (tr.evaluate_log(s, each, propensities=propensities(whole), min_overlap=0)
            for each, s in ((summed, order), (whole, np.arange(order.size))))  # fmt: skip
    assert vars(a.estimates["ranker"]["DCG(gain=linear)@10"])["value"] == pytest.approx(
        b.estimates["ranker"]["DCG(gain=linear)@10"].value
    )
    parts = summed.first(2).split(0.5)
    assert sum(part.impressions for part in parts) == whole.impressions


def test_training_data_of_a_sum(folder, data):
    whole, summed = (tr.load_clicks(folder, data, summed=each) for each in (False, True))
    for estimator in ("ips", "dr", "two-tower"):
        a, b = (
            each.to_dataset(propensities(whole), estimator=estimator) for each in (summed, whole)
        )
        np.testing.assert_allclose(a.y, b.y, rtol=1e-5)
        np.testing.assert_allclose(a.weights, b.weights)


def test_weights_and_propensities_are_summed(log, data, tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, log.impressions)
    log.save(tmp_path / "log.parquet")
    frame = pl.read_parquet(tmp_path / "log.parquet").with_columns(
        weight=weight[log.impression], propensity=rng.uniform(0.1, 1, log.position.size)
    )
    frame.write_parquet(tmp_path / "log.parquet")
    whole, summed = (
        tr.load_clicks(tmp_path / "log.parquet", data, summed=each) for each in (False, True)
    )
    assert summed.impressions == weight.sum()
    a, b = (click_credits(each, None, CreditOptions()) for each in (summed, whole))
    np.testing.assert_allclose(a.values, b.values, rtol=1e-12)


@pytest.mark.parametrize("chunk", [1, 5000, 10**6])
def test_wide_logs_are_summed(folder, chunk, monkeypatch, tmp_path):
    monkeypatch.setattr(log_sums, "CHUNK", chunk)
    long = pl.read_parquet(folder).sort("impression", "position")
    impression = pl.col("query", "randomised").first()
    wide = long.group_by("impression", maintain_order=True).agg(impression, "docid", "clicked")
    wide.write_parquet(tmp_path / "wide.parquet")
    summed = tr.load_clicks(tmp_path / "wide.parquet", summed=True)
    assert summed.summary == tr.load_clicks(folder, summed=True).summary
    bad = wide.with_columns(query=pl.when(pl.int_range(pl.len()) != 2500).then("query"))
    bad.write_parquet(tmp_path / "wide.parquet")
    with pytest.raises(tr.InputError, match="row 2501 has no query"):
        tr.load_clicks(tmp_path / "wide.parquet", summed=True)
    monkeypatch.setattr(log_reading, "_MANY", 5000)  # documents, of 3,000 rows
    wide.write_parquet(tmp_path / "wide.parquet")
    assert tr.load_clicks(tmp_path / "wide.parquet").is_sum


def test_a_sum_of_small_weights(log, data, tmp_path):
    light = {**vars(log), "weight": np.full(log.impressions, 1e-6)}
    names = tr.ClickLog.__dataclass_fields__
    tr.ClickLog(**{name: light[name] for name in names}).save(tmp_path / "log.parquet")
    summed = tr.load_clicks(tmp_path / "log.parquet", data, summed=True)
    assert summed.summary.click_rates == pytest.approx(log.summary.click_rates)
    assert CreditOptions(clip="auto").bound(summed) == 1


def test_mistakes_in_a_sum(folder, log, data, tmp_path):
    summed = tr.load_clicks(folder, summed=True)
    for call in (
        lambda: summed.save(tmp_path / "log.csv"),
        lambda: summed.select(np.ones(3000, bool)),
        lambda: tr.compare_click_models(summed),
    ):
        with pytest.raises(tr.InputError, match=r"needs single impressions.* summed=False"):
            call()
    with pytest.raises(tr.InputError, match="with features cannot be summed"):
        tr.load_clicks(folder, features=["position"], summed=True)
    with pytest.raises(tr.InputError, match="Unknown summed 'yes'"):
        tr.load_clicks(folder, summed="yes")
    with pytest.raises(tr.InputError, match=r"shows document d\d+ of query q\d+, which the data"):
        tr.load_clicks(folder, made_data(queries=2), summed=True)


def test_bad_rows_of_a_sum(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(log_sums, "CHUNK", 100)
    frame, source = pl.read_parquet(folder / "0.parquet"), tmp_path / "log.parquet"
    bad = pl.int_range(pl.len()) == 3000
    for changed, complaint in (
        (frame.sort("position"), r"rows of an impression are not together\. Sort the log by 'impr"),
        (frame.with_columns(clicked=pl.when(bad).then(5).otherwise(0)), "row 3001 has a value for"),
        (frame.with_columns(weight=0.0), "all weights are 0"),
        (frame[:0], "has no rows"),
    ):
        changed.write_parquet(source)
        with pytest.raises(tr.InputError, match=complaint):
            tr.load_clicks(source, summed=True)
