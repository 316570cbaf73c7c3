"""The report: it says what was found, loads nothing, and nothing of the data is code."""

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

import twinrank as tr
from report_example import METHODS, evaluations, example, histories, queries
from twinrank.experiments.report.query_gains import BINS, HEIGHT, WIDTH, binned, gain_plots
from twinrank.experiments.report.query_rankings import RankedQuery, as_json, chosen_queries
from twinrank.experiments.report.report_content import ReportContent
from twinrank.experiments.report.report_figures import (
    by_cutoff,
    by_grade,
    by_length,
    draw_curves,
    limits,
    sets_of,
)
from twinrank.experiments.report.report_page import render, write_report
from twinrank.experiments.report.svg import inline_svg
from twinrank.support.errors import InputError
from twinrank.support.tables import Cell, ResultTable

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> & </title></style> {{ 7*7 }}"


class Page(HTMLParser):
    """A page taken apart; tags that don't match are an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.stack, self.texts = [], [], []
        self.feed(text)
        assert not self.stack, self.stack

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append((tag, len(self.texts)))

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.stack[-1][0] == tag, (tag, self.stack[-3:])
        self.stack.pop()

    def handle_data(self, data):
        self.texts.append(([tag for tag, _ in self.stack], data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return "".join(data for stack, data in self.texts if tag in stack)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return example(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def html(content):
    return render(content)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_every_section_is_there_and_can_be_reached(page):
    wanted = [
        "results",
        "gains",
        "queries",
        "cutoffs",
        "groups",
        "curves",
        "costs",
        "tables",
        "figures",
        "data",
        "settings",
        "reproduce",
    ]
    assert [link["href"] for link in page.all("a")] == [f"#{name}" for name in wanted]
    assert {a["id"] for a in page.all("h2")} == {*wanted, "notes"}
    assert len(page.all("h1")) == 1
    assert "ListNet, fold 2: failed." in page.text("aside")
    assert "twinrank compare" in page.text("pre")


def test_ids_are_unique_and_references_lead_somewhere(html, page):
    ids = Counter(a["id"] for _, a in page.tags if "id" in a)
    assert max(ids.values()) == 1
    used = [a[k] for _, a in page.tags for k in ("aria-labelledby", "for") if k in a]
    used += [a["href"][1:] for _, a in page.tags if a.get("href", "").startswith("#")]
    used += re.findall(r"url\(#([^)]+)\)", html)
    assert len(used) > 20
    assert set(used) <= set(ids)


def test_the_table_says_what_was_found(content, page, html):
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    rows = re.findall(r'<tr><th scope="row">(.+?)</th>\s*<td data-value="(.+?)"', body)
    means = {name: by["nDCG@3"] for name, by in content.comparison.means.items()}
    assert {name: float(value) for name, value in rows} == means
    assert [name for name, _ in rows] == sorted(means, key=means.get, reverse=True)
    assert body.count("<strong>") == 1
    assert f"<strong>{max(means.values()):.4f}</strong>" in body
    worst = rows[-1][0]
    p = content.comparison.p_values["nDCG@3"][worst]
    behind = f"−{means[rows[0][0]] - means[worst]:.4f} compared with {rows[0][0]}"
    p_value = "&lt; 0.0001" if p < 1e-4 else f"= {p:.2g}"
    tooltip = f"{behind}, p {p_value}; 95 % confidence interval"
    assert body.count(tooltip) == 2  # on hover, and for a screen reader
    headings = [a for a in page.all("th") if a.get("aria-sort")]
    assert headings == [
        {
            "scope": "col",
            "aria-sort": "descending",
            "data-order": "number",
            "data-first": "descending",
        }
    ]


def test_pictures_and_tables_have_names(page):
    pictures = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(pictures) > 10
    assert all(a["aria-label"] for a in pictures)
    assert all(a["aria-hidden"] == "true" for a in page.all("svg"))
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))
    regions = [a for _, a in page.tags if a.get("role") == "region"]
    assert all(a["aria-label"] and a["tabindex"] == "0" for a in regions)
    assert "A line that rises." in [a["aria-label"] for a in pictures]


def test_nothing_is_loaded(html, page):
    assert not re.search(r"https?://|@import|url\((?!#)", html)
    assert not [a for _, a in page.tags if "src" in a or "srcset" in a]
    references = {a["href"] for _, a in page.tags if "href" in a}
    assert {r for r in references if not r.startswith("#")} == {"data:,"}
    (policy,) = (a["content"] for a in page.all("meta") if "http-equiv" in a)
    *_, script = (data for stack, data in page.texts if "script" in stack)
    assert [a.get("type") for a in page.all("script")] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_what_comes_from_the_data_stays_text(tmp_path):
    methods = tuple(f"{HOSTILE}{i}" for i in range(3))
    found, _, _ = evaluations(methods)
    values = {
        name: {f"{HOSTILE}@{k}": one.values["nDCG@3"] for k in (1, 5)}
        for name, one in found.items()
    }
    content = example(
        tmp_path,
        methods,
        **dict.fromkeys(("title", "headline", "command", "validation_measure"), HOSTILE),
        data_summary=[(HOSTILE, HOSTILE)],
        settings=[(HOSTILE, HOSTILE)],
        versions={HOSTILE: HOSTILE},
        comparison=tr.compare(values),
        evaluations={},
        curves={HOSTILE: [[{"iteration": 1, "loss": 1.0, HOSTILE: 0.5}]]},
        notes=[HOSTILE],
        figures=[(HOSTILE, '<svg xmlns="http://www.w3.org/2000/svg"/>', HOSTILE)],
        tables=[
            (HOSTILE, ResultTable(HOSTILE * 2, [HOSTILE], [[Cell(HOSTILE, mark="<")]], [HOSTILE]))
        ],
    )
    html = render(content)
    page = Page(html)
    assert len(page.all("script")) == 2  # one is data
    assert not page.all("img")
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    data, script = (data for stack, data in page.texts if "script" in stack)
    assert json.loads(data)["methods"] == list(methods)
    assert "alert" not in script + page.text("style")
    assert "<script>alert" not in html
    assert "49" not in page.text("h1")
    for tag in ("title", "h1", "caption", "td", "th", "option", "dt", "dd", "pre", "li", "h3"):
        assert HOSTILE in page.text(tag), tag
    shown = [a["aria-label"] for _, a in page.tags if HOSTILE in a.get("aria-label", "")]
    assert len(shown) > 5


def test_names_that_are_no_unicode_or_not_printable(tmp_path):
    content = example(tmp_path, ("a\udc80b", "c\x01$\\frac{", "排序_"))
    write_report(tmp_path / "report.html", content)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "排序_" in text
    assert "a\\udc80b" in text


def test_the_same_content_is_the_same_page(content, html):
    assert render(content) == html


def test_a_page_with_nothing_but_a_title():
    page = Page(render(ReportContent("Nothing yet")))
    assert page.text("h1") == "Nothing yet"
    assert not page.all("section") + page.all("table") + page.all("figure")


def test_one_method_has_nobody_to_gain_from(tmp_path):
    content = example(tmp_path, METHODS[:1])
    page = Page(render(content))
    assert gain_plots(content) is None
    assert "gains" not in {a.get("id") for a in page.all("h2")}
    assert "results" in {a.get("id") for a in page.all("h2")}


def test_evaluations_alone_are_compared():
    found, _, _ = evaluations()
    html = render(ReportContent("Compared", evaluations=found))
    assert all(f"{one['AP']:.4f}" in html for one in found.values())


def test_values_that_are_missing():
    nothing = np.full(5, np.nan)
    some = np.array([0.5, np.nan, 0.25, np.nan, 1])
    values = {"A": {"AP": some, "RR": nothing}, "B": {"AP": nothing, "RR": nothing}}
    content = ReportContent(
        "Missing",
        comparison=tr.compare(values),
        list_sizes=[1, 2, 3, 4, 5],
        list_grades=[0, 1, 0, 1, 0],
        seconds={"A": float("nan"), "B": 2.0},
        memory={"B": float("nan")},
        curves={
            "A": [[]],
            "B": [[{"iteration": 1, "loss": float("nan"), "validation": None}]],
            "C": [],
        },
    )
    page = Page(render(content))
    cells = [a["data-value"] for a in page.all("td") if "data-value" in a]
    assert cells.count("") == 3 + 3  # means, then times and memory
    assert str(tr.compare(values).means["A"]["AP"]) in cells
    assert gain_plots(content) is None
    assert by_grade(content).ticks == ["0\n(3)"]  # nobody has a value where the label is 1


def test_trainings_of_different_kinds_and_lengths():
    curves = histories()
    assert sets_of(curves) == ["validation"]
    low, high = limits(curves)
    assert low < 0.32 < 0.36 < high
    trees, net = (
        draw_curves(curves[name], ["validation"], (low, high), "x-") for name in METHODS[:2]
    )
    assert ">iteration<" in trees
    assert ">loss<" not in trees
    assert ">iteration<" in net
    assert ">loss<" in net
    assert draw_curves([[], [{"iteration": 1}]], [], (0, 1), "x-") == ""
    lonely = draw_curves([[{"iteration": 1, "loss": 0.5}]], [], (0, 1), "x-")
    assert lonely.count("<use") >= 1  # one epoch is a point, since no line can be drawn


def test_long_trainings_are_thinned_out():
    def page_of(rounds, units):
        unit = [{"iteration": i, "validation": np.sin(i)} for i in range(rounds)]
        return draw_curves([unit] * units, ["validation"], (-1, 1), "x-")

    assert len(page_of(2_000, 40)) < 1.2 * len(page_of(90, 12))


def test_gains_of_each_query(content):
    gains = gain_plots(content)
    assert list(gains.baselines) == list(METHODS)
    for baseline, found in gains.baselines.items():
        assert {gain.method for gain in found} == set(METHODS) - {baseline}
        for gain in found:
            a, b = (content.values[name]["nDCG@3"] for name in (gain.method, baseline))
            kept = [(x, y) for x, y in zip(a, b, strict=True) if x == x and y == y]
            assert gain.wins == sum(x - y > 1e-9 for x, y in kept)
            assert gain.losses == sum(y - x > 1e-9 for x, y in kept)
            assert gain.queries == len(kept)
            assert gain.mean == pytest.approx(sum(x - y for x, y in kept) / len(kept))
            assert gain.p == pytest.approx(tr.p_value(a, b))
            drawn = [
                _steps(path, len(kept), gains.limit) for path in (gain.gain_path, gain.loss_path)
            ]
            wanted = sorted((x - y for x, y in kept), reverse=True)
            np.testing.assert_allclose(np.sum(drawn, axis=0), wanted, atol=2e-3)


def _steps(path, queries, reach):
    """The values that a drawn path has, one by one."""
    values = np.zeros(queries)
    width = WIDTH / queries
    start = re.match(r"M([\d.]+)", path)
    x = float(start[1]) if start else 0
    for height, end in re.findall(r"V([\d.]+)H([\d.]+)", path):
        values[round(x / width)] = (1 - float(height) / (HEIGHT / 2)) * reach
        x = float(end)
    return values


def test_many_queries_are_drawn_as_means_of_neighbours():
    gains = np.random.default_rng(0).normal(size=10 * BINS)
    wanted = [part.mean() for part in np.array_split(np.sort(gains)[::-1], BINS)]
    np.testing.assert_allclose(binned(gains), wanted)
    uneven = np.random.default_rng(0).normal(size=BINS + 7)
    assert binned(uneven).size == BINS
    assert (np.diff(binned(uneven)) <= 0).all()


def test_the_baseline_and_the_measure_can_be_chosen(tmp_path):
    content = example(tmp_path, baseline=METHODS[2], measure="AP", curves={})
    html = render(content)
    assert gain_plots(content).first == METHODS[2]
    assert f"selected>{METHODS[2]}</option>" in html
    assert "Mean AP of groups of queries" in html


def test_seventeen_methods_and_thirty_thousand_queries_stay_small():
    rng = np.random.default_rng(0)
    values = {f"method {i}": {"nDCG@10": rng.random(30_000)} for i in range(17)}
    content = ReportContent(
        "Many", comparison=tr.compare(values), list_sizes=rng.integers(1, 300, 30_000)
    )
    assert len(render(content)) < 1_000_000


def test_by_cutoff(content):
    lines = by_cutoff(content)
    assert list(lines) == ["nDCG"]  # AP has no cutoff, nERR a single one
    assert lines["nDCG"].ticks == ["1", "3", "10"]
    for method, one in content.evaluations.items():
        assert lines["nDCG"].values[method] == [one[f"nDCG@{k}"] for k in (1, 3, 10)]


def test_by_kind_of_query(content):
    for lines, kind in (
        (by_length(content), content.list_sizes),
        (by_grade(content), content.list_grades),
    ):
        for place, label in enumerate(lines.ticks):
            low, high, count = re.fullmatch(r"(\d+)(?:–(\d+))?\n\((\d+)\)", label).groups()
            inside = (kind >= int(low)) & (kind <= int(high or low))
            assert inside.sum() == int(count)
            for method, one in content.evaluations.items():
                mean = np.nanmean(one.values["nDCG@3"][inside])
                assert lines.values[method][place] == pytest.approx(mean)
    counts = [int(re.search(r"\((\d+)\)", p)[1]) for p in by_length(content).ticks]
    assert len(counts) == 4
    assert sum(counts) == 60
    assert max(counts) < 25


def test_lists_of_one_length_and_labels_that_are_measurements():
    found, sizes, _ = evaluations()
    grades = np.linspace(0, 1, sizes.size)
    content = ReportContent(
        "x", evaluations=found, list_sizes=np.full(sizes.size, 7), list_grades=grades
    )
    assert by_length(content).ticks == ["7\n(60)"]
    assert len(by_grade(content).ticks) == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"list_sizes": [1, 2]}, "list_sizes has 2 queries but the evaluations have 60"),
        ({"list_grades": [1]}, "list_grades has 1 queries"),
        ({"measure": "nDCG@4"}, "nDCG@4"),
        ({"baseline": "Lambdamart"}, "LambdaMART"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, wrong, message):
    with pytest.raises(InputError, match=re.escape(message)):
        example(tmp_path, **wrong)


@pytest.mark.parametrize("svg", ["<svg", "<p>text</p>"])
def test_a_figure_that_is_no_svg_leaves_the_old_report(tmp_path, svg):
    path = tmp_path / "report.html"
    write_report(path, ReportContent("Old"))
    with pytest.raises(InputError, match="is not SVG"):
        write_report(path, ReportContent("New", figures=[("A figure", svg, "")]))
    assert "Old" in path.read_text("utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_svg_of_a_page_has_its_colours_and_no_code():
    svg = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink"
      width="10pt" height="20pt" onload="alert(1)"><style>* { color: red }</style>
      <script>alert(1)</script><a x:href="javascript:alert(1)"><text>away</text></a>
      <defs><clipPath id="c"><rect/></clipPath><path id="unused" d="M 1.23456 2"/></defs>
      <image x:href="http://example.org/x.png"/><image x:href="data:image/png;base64,AA=="/>
      <path clip-path="url(#c)" style="stroke: #2f6fab; fill: #000000; font-family: 'Arial'"/>
      <path style="fill: url(http://example.org/#x)"/><g id="series-1"><path/></g>
      <text>1 &lt; 2</text></svg>"""
    shown = inline_svg(svg, "p-", {1: "<b>"})
    assert shown.startswith('<svg viewBox="0 0 10 20" aria-hidden="true" focusable="false">')
    for gone in ("alert", "red", "away", "http", "Arial", "unused", "onload"):
        assert gone not in shown, gone
    for kept in (
        'id="p-c"', "url(#p-c)", "stroke: var(--series-0)", "fill: currentColor", "1 &lt; 2",
        'd="M 1.23 2"', '<g data-series="1"><title>&lt;b&gt;</title>', "data:image/png",
    ):  # fmt: skip
        assert kept in shown, kept


def test_queries_on_which_methods_differ_most():
    values = {"a": np.array([0.1, np.nan, 0.5, 0.9]), "b": np.array([0.2, 0.1, 0.5, 0.1])}
    assert chosen_queries(values, 3).tolist() == [3, 0, 2]
    assert chosen_queries(values, 1).tolist() == [3]


def test_a_query_has_rankings_moves_and_features():
    """The second feature is what the methods disagree on; labels agree with the first."""
    rng = np.random.default_rng(0)
    good, bad = rng.normal(size=(2, 40))
    X = np.column_stack([good, bad, np.full(40, 3.0), np.full(40, np.nan)])
    labels = (good > 0).astype(float)
    scores = {"a": good, "b": good + bad}
    query = RankedQuery("q", labels, scores, {"a": 1.0, "b": np.nan}, X)
    text = as_json([query], ["a", "b"], ["good", "bad", "constant", "missing"], "AP")
    content = json.loads(text)
    (found,) = content["queries"]
    assert not content["attributed"]
    assert found["values"] == [1.0, None]
    for row, name in zip(found["ranks"], scores, strict=True):
        order = np.argsort(-scores[name])
        best = [found["documents"][row.index(rank)] for rank in range(1, 11)]
        assert best == [str(i + 1) for i in order[:10]]
    features = {row[0]: row[1:] for row in found["pairs"]["0,1"]}
    assert list(features) == [1, 0]
    strength, with_labels, up, down = features[1]
    assert strength > 0.8
    assert abs(with_labels) < 0.4
    assert up > 0 > down
    assert features[0][1] > 0.7


def test_attributions_share_the_difference():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    weights = {"a": np.array([1.0, 0.0, 0.5]), "b": np.array([1.0, 2.0, 0.5])}
    query = RankedQuery(
        "q",
        (X[:, 0] > 0).astype(float),
        {name: X @ w for name, w in weights.items()},
        {"a": 1.0, "b": 0.5},
        X,
        [f"d{i}" for i in range(30)],
        {name: X * w for name, w in weights.items()},
    )
    content = json.loads(as_json([query], ["a", "b"], [], "AP"))
    assert content["attributed"]
    rows = content["queries"][0]["pairs"]["0,1"]
    assert rows[0][0] == 1
    assert sum(row[1] for row in rows) == pytest.approx(1, abs=0.01)


def test_the_number_of_queries_bounds_the_size():
    sizes = [len(as_json(queries(count=n), METHODS, ["bm25"] * 4, "AP")) for n in (0, 5, 10)]
    assert sizes[0] < 200
    assert sizes[1] < 5 * 2_500
    assert sizes[2] < 10 * 2_500
    assert 'id="explorer"' not in render(ReportContent("None"))
