"""Attacks on output: hostile names in HTML, LaTeX, Markdown, CSV and on the terminal."""

import csv
import io
import re
from html.parser import HTMLParser

import numpy as np

import twinrank as tr
from twinrank.support.tables import Cell, ResultTable
from twinrank.support.terminal import printable

from .harness import attack

PARTS = ["<script>alert(1)</script>", '" onload="x', "'", "&lt;", "\\input{x}", "$x$", "%",
         "{", "}", "\\\\", "^^41", "\x1b[31m", "\x9b2J", "\r", "\n", "\t", "=1+1", "@x", "-1", "|",
         "`", "](javascript:x)", "‮", "\0", "é", "\ud800", ",", '"', "]]>", "<!--", "#"]  # fmt: skip
COMMANDS = {"begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "textbf",
            "textsuperscript", "textbackslash", "textasciitilde", "textasciicircum", "textless",
            "textgreater", "textbar", "par", "footnotesize", "pm", "times", "ge"}  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def name(random):
    return "".join(random.choice(PARTS, random.integers(1, 6)))


@attack("output: hostile names")
def hostile_names(random, folder):
    """No markup, command or control sequence of a name survives."""
    while True:
        rows = [[Cell(name(random)), Cell(name(random), best=True)] for _ in range(3)]
        table = ResultTable(name(random), [name(random), name(random)], rows, [name(random)])
        tags = Tags(table.to_html()).tags
        known = {"table", "caption", "thead", "tbody", "tr", "th", "td", "strong", "p", "sup"}
        assert {tag for tag, _ in tags} <= known, tags
        assert all(set(attributes) <= {"scope"} for _, attributes in tags), tags
        latex = table.to_latex()
        commands = re.findall(r"\\([A-Za-z]+)", latex.replace("\\\\", "").replace(r"\&", ""))
        assert set(commands) <= COMMANDS, commands
        text = table.to_text()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f‮]", text), repr(text)
        shown = printable(name(random))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮\ud800]", shown), repr(shown)
        yield
        ids = [re.sub(r"[\0\ud800]", "", name(random)) + str(i) for i in range(4)]
        data = tr.Dataset.from_arrays(np.eye(4), [0, 1, 0, 2], qid=np.array(ids)[[0, 0, 1, 1]])
        result = tr.evaluate(data.y, data.y, data.lists, ["nDCG"])
        assert list(csv.reader(io.StringIO(result.to_csv())))
        path = folder / "a.csv"
        data.save(path)
        assert tr.load(path, cache=False).query_ids.tolist() == data.query_ids.tolist()
        yield
