"""Memory that a process can take, and what training says when that is too little."""

import re
import resource

import pytest

import twinrank as tr
from twinrank.cli.data_options import as_option
from twinrank.learning.boosting import tree_memory
from twinrank.learning.boosting.engines import TreeSettings, engine
from twinrank.support import memory
from twinrank.support.memory import available_memory, bytes_of, memory_in_use
from twinrank.training import Callback

GB = 10**9


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.delenv("TWINRANK_MEMORY", raising=False)
    monkeypatch.setattr(memory, "_limits", lambda: iter(()))


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_system_and_control_groups(tmp_path):
    assert available_memory(tmp_path) is None
    write(tmp_path, {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 4000000 kB\n"})
    assert available_memory(tmp_path) == 4_096_000_000
    group = "sys/fs/cgroup/jobs"
    files = {
        "proc/self/cgroup": "0::/jobs/one\n",
        f"{group}/one/memory.max": "max\n",
        f"{group}/memory.max": "2000\n",
        f"{group}/memory.current": "1500\n",
        f"{group}/memory.stat": "anon 900\nactive_file 200\ninactive_file 100\n",
    }
    write(tmp_path, files)
    assert available_memory(tmp_path) == 2000 - 1500 + 300
    write(tmp_path, {f"{group}/memory.current": "2900\n"})
    assert available_memory(tmp_path) == 0


def test_control_groups_of_version_1_in_a_container(tmp_path):
    """The path is that of the host, and the files of the group are in the base folder."""
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/1\n3:memory:/docker/1\n0::/\n",
        f"{base}/memory.limit_in_bytes": f"{GB}\n",
        f"{base}/memory.usage_in_bytes": "400\n",
        f"{base}/memory.stat": "cache 100\ntotal_active_file 10\ntotal_inactive_file 20\n",
    }
    write(tmp_path, files)
    assert available_memory(tmp_path) == GB - 400 + 30
    write(tmp_path, {f"{base}/memory.limit_in_bytes": "9223372036854771712\n"})
    assert available_memory(tmp_path) is None


def test_limits_of_the_process(tmp_path, monkeypatch):
    monkeypatch.undo()
    if available_memory() is None:
        pytest.skip("unknown on this system")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 62, 1 << 62))
    assert (1 << 61) < available_memory(tmp_path) < 1 << 62


def test_the_variable_replaces_all(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINRANK_MEMORY", "8 GB")
    assert abs(available_memory(tmp_path) - (8 * GB - memory_in_use())) < 1_000_000
    monkeypatch.setenv("TWINRANK_MEMORY", "1kb")
    assert available_memory(tmp_path) == 0
    for wrong in ("much", "1.2.3GB", "GB"):
        with pytest.raises(tr.InputError, match="TWINRANK_MEMORY must be a size"):
            bytes_of(wrong)


@pytest.fixture
def data():
    return tr.synthetic_web_search(queries=40)


def test_too_little_memory_is_an_error_before_training(data, monkeypatch):
    monkeypatch.setattr(tree_memory, "_CHECKED", 0)
    monkeypatch.setattr(tree_memory, "memory_in_use", lambda: 50_000_000)
    settings = TreeSettings(learning_rate=0.1, num_leaves=15)
    needs = engine("lightgbm").memory_of(settings, data.documents, 0, 272)
    monkeypatch.setattr(tree_memory, "available_memory", lambda: 80_000_000)
    with pytest.raises(tr.InputError, match=r"272 columns\. If this is wrong, set the variable TW"):
        tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(data)
    monkeypatch.setattr(tree_memory, "available_memory", lambda: int(needs) - 1)
    ranker = tr.BoostedRanker(n_estimators=2, ensemble_size=1, num_leaves=15)
    with pytest.raises(tr.InputError) as raised:
        ranker.fit(data)
    message = str(raised.value)
    assert f"needs about {(needs + 5e7) / 1e6:.0f} MB of memory, but" in message
    assert f"{data.documents:,} documents with 272 columns" in message
    assert "transforms='none'" in message
    assert "engine_params={'max_bin': 127}" in message  # smaller histograms are enough
    assert " and " not in message
    monkeypatch.setattr(tree_memory, "available_memory", lambda: 10**9)
    ranker.fit(data)


def test_a_share_of_the_queries_that_fits_is_named(data, monkeypatch):
    monkeypatch.setattr(tree_memory, "_CHECKED", 0)
    engine_of = type("Engine", (), {"memory_of": staticmethod(lambda s, n, o, c: 1000 * n)})
    monkeypatch.setattr(tree_memory, "available_memory", lambda: 450 * data.documents)
    with pytest.raises(
        tr.InputError, match=r"40 % of the queries, data\.split\(0\.4\)\[0\]"
    ) as raised:
        tree_memory.check_memory(
            engine_of, TreeSettings(learning_rate=0.1, num_leaves=3), data, 0, tr.transform("none")
        )
    assert "40 % of the queries, --sample-queries 0.4 (" in raised.value.render(as_option)


def test_raw_features_keep_more_queries_than_a_share_alone(data, monkeypatch):
    monkeypatch.setattr(tree_memory, "_CHECKED", 0)
    engine_of = type(
        "Engine", (), {"memory_of": staticmethod(lambda _, n, others, columns: columns * n)}
    )
    bytes_left = data.features * data.documents  # all queries raw, half of them with z-scores
    monkeypatch.setattr(tree_memory, "available_memory", lambda: 0.9 * bytes_left)
    settings = TreeSettings(learning_rate=0.1, num_leaves=3)
    with pytest.raises(tr.InputError) as raised:
        tree_memory.check_memory(engine_of, settings, data, 0, tr.transform("none | QueryZScore"))
    message = raised.value.render(as_option)
    assert "40 % of the queries, --sample-queries 0.4 (" in message
    assert "--set transforms=none with 90 % of the queries, --sample-queries 0.9 (" in message


def test_two_remedies_together_if_none_is_enough(data, monkeypatch):
    monkeypatch.setattr(tree_memory, "_CHECKED", 0)

    def memory_of(settings, documents, others, columns):
        return columns * settings.engine_params.get("max_bin", 255)

    engine_of = type("Engine", (), {"memory_of": staticmethod(memory_of)})
    settings = TreeSettings(learning_rate=0.1, num_leaves=3)
    for most, advice in (
        (272 * 15 - 1, "transforms='none' and engine_params={'max_bin': 15}"),
        (272 * 15, "engine_params={'max_bin': 15}"),
    ):
        monkeypatch.setattr(tree_memory, "available_memory", lambda most=most: most)
        with pytest.raises(tr.InputError, match=re.escape(advice)):
            tree_memory.check_memory(
                engine_of, settings, data, 0, tr.transform("none | QueryZScore")
            )


def test_a_long_preparation_is_announced(data, monkeypatch, capfd):
    class Notes(Callback):
        def on_prepare(self, note):
            notes.append(note)

    notes = []
    ranker = tr.BoostedRanker(n_estimators=2, ensemble_size=1, verbose=1)
    ranker.fit(data, callbacks=[Notes()])
    assert not notes
    monkeypatch.setattr(tree_memory, "_CHECKED", 0)
    monkeypatch.setattr(tree_memory, "_SLOW", 0)
    ranker.fit(data, callbacks=[Notes()])
    (note,) = notes
    assert f"{data.documents:,} documents with 272 columns: about" in note
    assert "before the first round" in note
    assert note in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none | QueryZScore", "none"])
def test_the_estimate_is_near_the_peak(name):
    """Of a training on 240,000 documents, in memory."""
    data = tr.synthetic_web_search(queries=2_000)
    ranker = tr.BoostedRanker(n_estimators=2, ensemble_size=1, num_leaves=15, transforms=name)
    ranker.fit(data.select(slice(0, 20)))
    with memory.PeakMemory() as peak:
        ranker.fit(data)
    if not peak.added:
        pytest.skip("unknown on this system")
    columns = tr.transform(name).outputs(data.features)
    settings = TreeSettings(learning_rate=0.1, num_leaves=15)
    needs = engine("lightgbm").memory_of(settings, data.documents, 0, columns)
    assert 0.6 * needs < peak.added < 1.05 * needs


def test_a_point_is_no_size():
    with pytest.raises(tr.InputError, match="TWINRANK_MEMORY must be a size"):
        bytes_of(".")
