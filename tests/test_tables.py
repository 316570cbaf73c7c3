"""Tables: aligned text, and Markdown, LaTeX and HTML in which names can't do harm."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinrank.support.tables import Cell, ResultTable

NASTY = r"a<b>&c|d_e*f%g$h#i{j}~k^l\m[n]`o"


def table(*names, title="", notes=(), about_best="the best"):
    rows = [
        [Cell(name), Cell(f"{0.5 / (i + 1):.3f}", best=i == 0, mark="*" if i else "")]
        for i, name in enumerate(names or ("one", "another"))
    ]
    return ResultTable(title, ["", "nDCG@10"], rows, notes, about_best)


def test_text():
    assert table(title="Title", notes=["A note."]).to_text() == (
        "Title\n"
        "         nDCG@10\n"
        "───────  ────────\n"
        "one        0.500•\n"
        "another    0.250*\n"
        "•: the best.\n"
        "A note."
    )


def test_text_fits_the_width():
    rows = [[Cell("method"), *(Cell(f"0.{i}000") for i in range(1, 6))]]
    wide = ResultTable(
        "", ["", *(f"nDCG@{i}" for i in range(1, 6))], rows, ["A note of five words."]
    )
    assert wide.to_text(width=24) == (
        "        nDCG@1  nDCG@2\n"
        "──────  ──────  ──────\n"
        "method  0.1000  0.2000\n"
        "\n"
        "        nDCG@3  nDCG@4\n"
        "──────  ──────  ──────\n"
        "method  0.3000  0.4000\n"
        "\n"
        "        nDCG@5\n"
        "──────  ──────\n"
        "method  0.5000\n"
        "A note of five words."
    )
    assert wide.to_text(width=80) == wide.to_text()
    assert wide.to_text(width=10).splitlines()[-2:] == ["five", "words."]


def test_text_in_colour():
    shown = table().to_text(colour=True)
    assert "one      \033[1m  0.500\033[0m" in shown
    assert "•" not in shown
    assert "Bold: the best." in shown


def test_figures_are_aligned_and_marks_hang_over():
    rows = [[Cell("a"), Cell("1,234", mark="*"), Cell("1")], [Cell("bb"), Cell("5"), Cell("22")]]
    assert ResultTable("", ["x", "y", "z"], rows).to_text() == (
        "x       y    z\n"
        "──  ──────  ──\n"
        "a   1,234*   1\n"
        "bb      5   22"
    )  # fmt: skip


def test_nothing_is_said_about_the_best_where_none_is_shown():
    plain = ResultTable("", ["a"], [[Cell("x")]], about_best="the best")
    for shown in (plain.to_text(), plain.to_markdown(), plain.to_latex(), plain.to_html()):
        assert "the best" not in shown


def test_markdown():
    assert table("one", "a_b|c", title="T*", notes=["p < 1"]).to_markdown() == (
        "**T\\***\n"
        "\n"
        "|  | nDCG@10 |\n"
        "|---|---:|\n"
        "| one | **0.500** |\n"
        "| a\\_b\\|c | 0.250\\* |\n"
        "\n"
        "Bold: the best.\n"
        "\n"
        "p \\< 1"
    )


def test_latex():
    assert table("one", "a_b & c", title="T", notes=["50 %"]).to_latex() == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{T}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            r" & nDCG@10 \\",
            r"\midrule",
            r"one & \textbf{0.500} \\",
            r"a\_b \& c & 0.250\textsuperscript{{*}} \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\footnotesize Bold: the best.",
            r"\par\footnotesize 50 \%",
            r"\end{table}",
        ]
    )
    assert r"\caption" not in table().to_latex()


def test_html():
    assert table("one", "<b>&", title="T").to_html() == (
        "<table><caption>T</caption>\n"
        '<thead><tr><th scope="col"></th><th scope="col">nDCG@10</th></tr></thead>\n'
        "<tbody>\n"
        '<tr><th scope="row">one</th><td><strong>0.500</strong></td></tr>\n'
        '<tr><th scope="row">&lt;b&gt;&amp;</th><td>0.250<sup>*</sup></td></tr>\n'
        "</tbody></table>\n"
        "<p>Bold: the best.</p>"
    )


class Reader(HTMLParser):
    """Tags that were opened and closed in order, and the text of each cell."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & {*self.open}:
            self.cells[-1] += data


def cells_of(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader.cells


def balanced(latex):
    depth = 0
    for brace in re.findall(r"\\.|[{}]", latex):  # an escaped one doesn't count
        depth += {"{": 1, "}": -1}.get(brace, 0)
        assert depth >= 0
    return depth == 0


printable = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just(NASTY)


@given(st.lists(printable, min_size=1, max_size=4), printable)
def test_any_name_in_any_format(names, note):
    shown = table(*names, title=note, notes=[note])
    plain = ["".join(x if x.isprintable() else " " for x in name) for name in names]
    found = cells_of(shown.to_html())
    assert found[2::2] == plain
    latex = shown.to_latex()
    assert balanced(latex)
    rows = latex.split("\\midrule\n")[1].split("\n\\bottomrule")[0].split("\n")
    assert len(rows) == len(names)
    for row in rows:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*&", row.removesuffix(r"\\"))) == 1
        assert not re.match(r"\s*[*\[]", row)  # \\ would take it for its own
    markdown = shown.to_markdown().split("|---|---:|\n")[1].split("\n\n")[0].split("\n")
    assert all(len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", row))) == 3 for row in markdown)
    text = shown.to_text().split("\n")
    assert len(text) == 2 + len(names) + 2 + bool(note)


@pytest.mark.parametrize("special", list("&%$#_{}~^<>|\\"))
def test_latex_specials_never_stand_alone(special):
    written = table(f"x{special}y").to_latex().split("\\midrule\n")[1].split(" & ")[0]
    assert written.startswith("x\\")
    assert balanced(written)


def test_latex_captions_are_not_numbered_twice():
    for title, caption in (
        ("Table 4, baselines: nDCG", "Baselines: nDCG"),
        ("Table 2: ranks", "Ranks"),
    ):
        text = ResultTable(title, ["", "a"], [[Cell("x"), Cell("1")]]).to_latex()
        assert rf"\caption{{{caption}}}" in text
