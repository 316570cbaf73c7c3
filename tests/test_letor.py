"""LETOR text against a slow reference and scikit-learn: numbers, errors, pieces, damaged files."""

import io
import lzma
import random
import tarfile
import warnings
from decimal import Context, Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.datasets import load_svmlight_file

import letor_reference as reference
import twinrank as tr
from rankings import quietly
from twinrank.data import letor
from twinrank.data.store import permute

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
LARGEST = float(np.finfo(np.float32).max)
BOUND = 2**128 - 2**103  # from here on a float64 becomes an infinite float32
BOM = reference.BOM
ROW = b"1 qid:1 1:2\n"
PIECE = 1 << 22
EXACTLY = Context(prec=300)
quick = settings(deadline=None, max_examples=50)

WORDS = {
    "label": "expected a label (a number), found ",
    "label range": "a label must be a finite number ≥ 0 (or −1 for unjudged), not ",
    "unjudged": "label −1 means unjudged; pass ",
    "qid": "expected qid:ID after the label, found ",
    "id text": "a query id must be UTF-8 without control characters, found ",
    "id length": "a query id must have at most 1,000 bytes, found ",
    "index": "expected a feature as index:value, found ",
    "zero": "feature indices start at 1, found ",
    "order": "feature indices must increase within a line, but ",
    "limit": "the index exceeds the limit of ",
    "value": "the value of a feature must be a number, found ",
    "not finite": "",
    "utf-16": "this is UTF-16 text; save the file as UTF-8",
    "no documents": " has no documents",
    "no features": " has no features",
}


UNJUDGED = "unjudged='keep' (measures count such documents as 0) or unjudged='drop'"
NINE = {"features": 9}
LIMITS = "features and max_features set the limit"
NOT_FINITE = (
    "is not a finite float32; fix the value, or pass "
    "non_finite='keep' or non_finite='clip' (infinities become ±3.4e38)"
)
ENCODING = "; check that the file is UTF-8 text"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("letor") / "rows.txt"


def load(path, content=None, **choices):
    if content is not None:
        path.write_bytes(content)
    return tr.load(path, cache=False, progress=False, **choices)


def message_of(path, content, **choices):
    with pytest.raises(tr.InputError) as caught:
        load(path, content, **choices)
    message = str(caught.value)
    assert message.endswith(".")
    return message


def words(text):
    return text.split()


def bits(values):
    """float32s as whole numbers: −0 is not 0, and any NaN is the same NaN."""
    values = np.ascontiguousarray(values, np.float32)
    return np.where(np.isnan(values), 0x7FC00000, values.view(np.uint32))


def notes_of(expected):
    """The notes that the reference has reason for, in their order."""
    names = [expected.qid[place] for place in np.argsort(expected.order)]
    runs = [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    counts = {"scattered": sum(runs.count(name) > 1 for name in set(runs))} | expected.counts
    forms = {
        "labels": ("The labels have whole numbers beyond 2^24, which lose digits as float32.",) * 2,
        "inexact": (
            "1 whole number beyond 2^24 loses digits as float32.",
            "{:,} whole numbers beyond 2^24 lose digits as float32.",
        ),
        "NaN": ("1 value is not a number (NaN).", "{:,} values are not a number (NaN)."),
        "infinite": (
            "1 value is beyond a float32's range.",
            "{:,} values are beyond a float32's range.",
        ),
        "scattered": (
            "The rows of 1 query were scattered; they are now grouped.",
            "The rows of {:,} queries were scattered; they are now grouped.",
        ),
        "dropped": (
            "1 document without a judgement (label −1) was dropped.",
            "{:,} documents without a judgement (label −1) were dropped.",
        ),
    }
    return [
        form[count > 1].format(count) for kind, form in forms.items() if (count := counts[kind])
    ]


def compare(path, content, **choices):
    """Load a file and hold it against the reference; what is wrong with it, or None."""
    try:
        expected = reference.parse(content, reference.Choices(**choices))
    except reference.Problem as problem:
        compare_message(path, problem, message_of(path, content, **choices))
        return problem.kind
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = load(path, content, **choices)
    assert_array_equal(bits(data.X), bits(expected.X))
    assert_array_equal(bits(data.y), bits(expected.y))
    assert data.qid.astype(str).tolist() == expected.qid
    comments = [b""] * len(expected.comments) if data.comments is None else data.comments.all_raw()
    assert list(comments) == expected.comments
    assert list(data.notes) == notes_of(expected)
    assert [str(warning.message) for warning in said] == [f"{path}: {note}" for note in data.notes]
    return None


def compare_message(path, problem, message):
    if problem.line is None:
        assert message.startswith(f"{path}{WORDS[problem.kind]}")
        return
    where, said = message.removeprefix(str(path)).split(": ", 1)
    assert where == f", line {problem.line}, column {problem.column}"
    if problem.kind == "label" and problem.text.startswith((b"\xff\xfe", b"\xfe\xff")):
        assert "UTF-16" in said
        return
    assert said.startswith(WORDS[problem.kind])
    shown = problem.text.decode(errors="backslashreplace")
    if problem.kind != "unjudged" and 0 < len(shown) <= 60 and shown.isprintable():
        assert f"'{shown}'" in said


# Numbers as text

digits = st.text("0123456789", min_size=1, max_size=40)
exponents = st.one_of(
    st.just(""), st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-60, 45))
)
decimals = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.one_of(
        digits,
        st.builds("{}.{}".format, digits, digits),
        st.builds(".{}".format, digits),
        st.builds("{}.".format, digits),
    ),
    exponents,
)
simple = st.one_of(
    st.integers(-20, 10**9).map(str), st.floats(-100, 100, width=32).map(lambda x: f"{x:.6f}")
)
numbers = st.one_of(simple, simple, st.floats(width=32, allow_nan=False).map(repr), decimals)


class TestRealRows:
    def compare(self, data, content, features):
        X, y, qid = load_svmlight_file(
            io.BytesIO(content), n_features=features, query_id=True, zero_based=False
        )
        assert_array_equal(bits(data.X + 0), bits(np.float32(X.toarray()) + 0))  # without −0
        assert_array_equal(bits(data.y), bits(y))
        assert_array_equal(data.qid, qid)

    def shared(self, name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"no {name}")
        return path

    def test_mslr(self, tmp_path):
        path = self.shared("MSLR-5k-rows.txt.xz")
        content = lzma.decompress(path.read_bytes())
        note = "4 whole numbers beyond 2^24 lose digits as float32."
        # The second time, the data are written to the cache; the third time, they come from it.
        for choices in ({"cache": False}, {"cache_dir": tmp_path}, {"cache_dir": tmp_path}):
            with pytest.warns(tr.DataWarning) as said:
                data = tr.load(path, progress=False, **choices)
            self.compare(data, content, 136)
            assert data.notes == (note,)
            assert [str(warning.message) for warning in said] == [f"{path}: {note}"]

    def test_mq2008(self, tmp_path):
        with tarfile.open(self.shared("MQ2008.tar.xz")) as archive:
            for part in ("train", "vali", "test"):
                content = archive.extractfile(f"MQ2008/Fold1/{part}.txt").read()
                data = load(tmp_path / f"{part}.txt", content)
                self.compare(data, content, 46)
                first = content.partition(b"#")[2].partition(b"\n")[0].removesuffix(b"\r")
                assert data.comments.raw(0) == first

    @quick
    @given(st.lists(st.lists(numbers, min_size=1, max_size=12), min_size=1, max_size=12))
    def test_many_shapes_of_numbers(self, file, rows):
        rows = [[x for x in row if abs(float(x)) < LARGEST] for row in rows]
        content = "".join(
            f"{i % 3} qid:{i // 2} " + " ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) + "\n"
            for i, row in enumerate(rows)
        ).encode()
        file.write_bytes(content)
        self.compare(quietly(file, progress=False, features=12), content, 12)
        assert compare(file, content, features=12) is None


NOT_NUMBERS = [
    *words(". + - +-1 --1 1.2.3 1e 1e+ 1e- e5 .e5 1e5.0 1_000 0x10 1,5 1f 1e5e5 1:2 $1 ١ ½"),
    *("", "1\0", "\x001", "1\x0b", "1\r", "1\r2"),
]


class TestNumbers:
    """Bit for bit what Python's float and NumPy's float32 make of a text."""

    def compare(self, path, texts):
        # The second of the three is read by the fast loop, if it is simple; the others aren't.
        rows = "".join(f"0 qid:1 1:{x} 2:{x} 3:{x}\n" for x in texts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tr.DataWarning)
            data = load(path, rows.encode(), non_finite="keep")
        expected = bits([reference.float32(x) for x in texts])
        assert_array_equal(bits(data.X), np.stack([expected] * 3, axis=1))

    @quick
    @given(st.lists(st.one_of(decimals, st.floats().map(repr)), min_size=1, max_size=60))
    def test_decimals(self, file, texts):
        self.compare(file, texts)

    @quick
    @given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
    def test_float32_in_many_spellings(self, file, values):
        forms = words("{!r} {:.7g} {:.9g} {:.17g} {:.3f} {:.6f} {:.40f} {:.25e} {:E}")
        self.compare(file, [form.format(x) for x in values for form in forms])

    @quick
    @given(st.lists(st.integers(0, 0x7F7FFFFF), min_size=1, max_size=20))
    def test_midpoints(self, file, patterns):
        """The exact middle between two float32s, and the nearest to it that text or float64 has."""
        texts = []
        for low in np.array(patterns, np.uint32).view(np.float32).tolist():
            high = float(np.nextafter(np.float32(low), np.float32(LARGEST)))
            middle = (low + high) / 2
            exact = Decimal(middle)
            texts += [f"{exact:f}", f"{exact:e}", f"{exact:.160f}", repr(middle)]
            texts += [repr(np.nextafter(middle, to).item()) for to in (0, np.inf)]
            texts += [
                str(EXACTLY.multiply(exact, 1 + Decimal(sign))) for sign in ("1e-30", "-1e-30")
            ]
        self.compare(file, [sign + x for x in texts for sign in ("", "-")])

    def test_about_the_largest(self, file):
        """float64 rounds text to the bound half a unit before it, and float32 that to infinity."""
        texts = [repr(float(BOUND)), repr(LARGEST), "3.4028235e38", "1e39", "1.8e308"]
        for offset in (-(10**30), -(2**75), -(10**20), -1, 0, 1, 10**20, 2**75, 10**30):
            whole = str(BOUND - 2**74 + offset)
            texts += [whole, f"{whole}.", f"00{whole}.000", f"{whole}.{'0' * 30}1", f"{whole}0e-1"]
            texts += [f"{whole[0]}.{whole[1:]}e38", f"0.000{whole}E42", f".{whole}0000e+39"]
            texts += [f"{whole[:size]}e{39 - size}" for size in range(16, 39)]
        texts = [sign + x for x in texts for sign in ("", "-", "+")]
        self.compare(file, texts)
        for text in texts[::5]:
            fits = abs(reference.float32(text)) <= LARGEST
            content = f"0 qid:1 1:{text}\n".encode()
            assert compare(file, content) == (None if fits else "not finite")
            assert compare(file, content, non_finite="clip") is None
            label = compare(file, f"{text} qid:1 1:1\n".encode())
            assert (label is None) == (fits and not text.startswith("-"))

    def test_far_exponents(self, file):
        zeros = "0" * 1_500
        texts = words(f"1e-400 1e400 0e{'9' * 30} 1e-{'9' * 30} -1e{'9' * 30} -0e5 -0 1e-300")
        texts += [f"0.{zeros}1e1501", f"1{zeros}e-1500", f"1{zeros}.5e-1500", f"-0.{zeros}"]
        texts += words("1e-45 7e-46 7.006492321624085e-46 7.1e-46 1.1754943e-38")
        texts += [f"1{'0' * 2_000_000}e-2000000", f".{'0' * 2_000_000}25e2000000"]
        self.compare(file, texts)

    def test_words(self, file):
        words = ["nan", "NaN", "-nan", "+NAN", "inf", "-Inf", "+INF", "infinity", "-INFINITY"]
        self.compare(file, words)
        for bad in ("na", "in", "infin", "infinit", "infinityy", "nan0", ".inf", "1nan", "n a n"):
            assert compare(file, f"0 qid:1 1:{bad}\n".encode(), non_finite="keep") == "value"

    @pytest.mark.parametrize("text", NOT_NUMBERS, ids=ascii)
    def test_what_is_no_number(self, file, text):
        for before, column in (("", 9), ("0:5 ", 13)):
            content = ROW + f"2 qid:1 {before}1:{text} 2:3\n".encode()
            message = message_of(file, content, zero_based=True)
            assert message == f"{file}, line 2, column {column}: {WORDS['value']}{f'1:{text}'!r}."
        assert compare(file, f"{text}; qid:1 1:1\n".encode()) == "label"


# A line that is wrong; the line, the column, what is wrong and how that goes on; choices
WRONG = [
    (b"2 1:3 2:4\n", 1, 3, "qid", "'1:3'"),
    (b"2\n", 1, 2, "qid", "nothing"),
    (b"2  \r\n", 1, 4, "qid", "nothing"),
    (b"2 # qid:1\n", 1, 3, "qid", "nothing"),
    (b"2 qid: 1:3\n", 1, 3, "qid", "'qid:'"),
    (b"2 QID:1 1:3\n", 1, 3, "qid", "'QID:1'"),
    (b"2 qi", 1, 3, "qid", "'qi'"),
    (ROW + b"qid:1 1:2\n", 2, 1, "label", "'qid:1'"),
    (ROW + b"  good qid:1 1:2\n", 2, 3, "label", "'good'"),
    (b"x y\n", 1, 1, "label", "'x'"),
    (b"-2 qid:1\n", 1, 1, "label range", "'-2'"),
    (b"-0.5 1:1\n", 1, 1, "label range", "'-0.5'"),
    (b"-1e-56 qid:1\n", 1, 1, "label range", "'-1e-56'"),
    (b"-.1e-400 qid:1\n", 1, 1, "label range", "'-.1e-400'"),
    (b" nan qid:1\n", 1, 2, "label range", "'nan'"),
    (b"inf qid:1\n", 1, 1, "label range", "'inf'"),
    (b"1e39 qid:1\n", 1, 1, "label range", "'1e39'"),
    (b"-1 qid:1 1:1\n", 1, 1, "unjudged", UNJUDGED),
    (b"-1.0 1:1\n", 1, 1, "unjudged", UNJUDGED),
    (b"\n\n1 qid:1 a:2\n", 3, 9, "index", "'a:2'"),
    (b"1 qid:1 1:2 3\n", 1, 13, "index", "'3'"),
    (b"1 qid:1 :2\n", 1, 9, "index", "':2'"),
    (b"1 qid:1 -1:2\n", 1, 9, "index", "'-1:2'"),
    (b"1 qid:1 1.0:2\n", 1, 9, "index", "'1.0:2'"),
    (b"1 qid:1 20240131\n", 1, 9, "index", "'20240131'"),
    (b"1 qid:1 1:1 qid:2\n", 1, 13, "index", "'qid:2'"),
    (b"1 qid:1 1: 2:3\n", 1, 9, "value", "'1:'"),
    (b"1 qid:1 1:x\n", 1, 9, "value", "'1:x'"),
    ("1 qid:é 2:1 1:3\n".encode(), 1, 13, "order", "'1:3' repeats or goes back"),
    (b"1 qid:1 1:1 2:2 2:2\n", 1, 17, "order", "'2:2' repeats or goes back"),
    (b"1 qid:1 0:1 2:2\n", 1, 9, "zero", "'0:1'; if they start at 0, pass zero_based=True"),
    (ROW + b"1 qid:1 100001:1\n", 2, 9, "limit", f"100,000 features: '100001:1'; {LIMITS}"),
    (b"1 qid:1 3:1 6:1\n", 1, 13, "limit", f"5 features: '6:1'; {LIMITS}", {"features": 5}),
    (b"1 qid:1 6:1\n", 1, 9, "limit", f"5 features: '6:1'; {LIMITS}", {"max_features": 5}),
    (b"1 qid:1 12345678901:1\n", 1, 9, "limit", f"100,000 features: '12345678901:1'; {LIMITS}"),
    (b"1 qid:1 00000001:1\n", 1, 9, "limit", f"100,000 features: '00000001:1'; {LIMITS}"),
    (b"1 qid:1 00000002:1 3:1\n", 1, 9, "limit", f"9 features: '00000002:1'; {LIMITS}", NINE),
    (b"1 qid:1 1:1 00000002:1 \n", 1, 13, "limit", f"9 features: '00000002:1'; {LIMITS}", NINE),
    (b"1 qid:1 1:nan\n", 1, 9, "not finite", f"'1:nan' {NOT_FINITE}"),
    (b"1 qid:1 1:1 2:-Inf\n", 1, 13, "not finite", f"'2:-Inf' {NOT_FINITE}"),
    (b"1 qid:1 1:1.8e308 2:1\n", 1, 9, "not finite", f"'1:1.8e308' {NOT_FINITE}"),
    (b"1 qid:1 1:1 2:-1e39 3:4\n", 1, 13, "not finite", f"'2:-1e39' {NOT_FINITE}"),
    (b"1 qid:1 1:1\0 2:1\n", 1, 9, "value", r"'1:1\x00'"),
    (b"1 qid:1\0 1:1\n", 1, 3, "id text", r"'qid:1\x00'"),
    (b"1 qid:a\rb 1:1\n", 1, 3, "id text", r"'qid:a\rb'"),
    (b"1 qid:\xe9t\xe9 1:1\n", 1, 3, "id text", r"'qid:\xe9t\xe9'"),
    (b"1 qid:\xed\xa0\x80 1:1\n", 1, 3, "id text", r"'qid:\xed\xa0\x80'"),
    (b"1 qid:" + b"q" * 1_001, 1, 3, "id length", f"'qid:{'q' * 56}…'"),
    (bytes(10_000), 1, 1, "label", "'" + r"\x00" * 60 + f"…'{ENCODING}"),
    (ROW + bytes(5), 2, 1, "label", "'" + r"\x00" * 5 + f"'{ENCODING}"),
    (ROW.decode().encode("utf-16-le"), 1, 1, "label", rf"'1\x00'{ENCODING}"),
    (ROW.decode().encode("utf-16"), 1, 1, "utf-16", ""),
    ("\ufeff# ü\n".encode("utf-16-be"), 1, 1, "utf-16", ""),
    (b"1 qid:1 1:2\r2 qid:1 1:3\r", 1, 9, "value", r"'1:2\r2'"),
    (b"1 qid:1 1:2 \r # a\n", 1, 13, "index", r"'\r'"),
    (b"1 qid:1 1:" + b"7" * 57 + b"x", 1, 9, "value", f"'1:{'7' * 57}x'"),
    (b"1 qid:1 1:" + b"7" * 10**6 + b"x", 1, 9, "value", f"'1:{'7' * 58}…'"),
]


class TestErrors:
    """Each says the file, the line, the column, the text, and what is expected."""

    @pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: ascii(wrong[0][:40])[2:-1])
    def test_message(self, file, wrong):
        content, line, column, kind, rest, *choices = wrong
        chosen = choices[0] if choices else {}
        expected = f"{file}, line {line}, column {column}: {WORDS[kind]}{rest}."
        assert message_of(file, content, **chosen) == expected
        assert compare(file, content, **chosen) == kind.replace("utf-16", "label")

    @pytest.mark.parametrize("content", [b"", b"\n", BOM, b"\n \r\n\t\n", b"# a\n\n  # b", b" "])
    def test_no_documents(self, file, content):
        assert message_of(file, content) == f"{file} has no documents."

    def test_nothing_left(self, file):
        content = b"-1 qid:1 1:1\n-1 qid:2 1:1\n"
        message = message_of(file, content, unjudged="drop")
        assert message == (
            f"{file} has no documents except 2 unjudged ones (label −1), "
            f"which unjudged='drop' leaves out."
        )

    @pytest.mark.parametrize("zero_based", [False, True])
    def test_no_features(self, file, zero_based):
        content = b"1 qid:1\n0 qid:1 # a\n"
        message = message_of(file, content, zero_based=zero_based)
        assert message.startswith(f"{file} has no features: no line has an index:value")
        data = load(file, content, features=2, zero_based=zero_based)
        assert_array_equal(data.X, np.zeros((2, 2)))

    def test_the_first_error_counts(self, file):
        """Though the second piece may be parsed before the first."""
        content = ROW * 10 + b"1 qid:1 1:x\n" + b"# \n" * PIECE + b"y\n"
        assert "line 11, column 9: " in message_of(file, content)

    def test_lines_are_counted_across_pieces(self, file):
        half = (b"1 qid:1 1:1".ljust(62) + b"\r\n") * 65_000 + b"#".ljust(127) + b"\n"
        message = message_of(file, half * 2 + b"\n1 qid:1 1:1 1:2\n")
        assert message.startswith(f"{file}, line 130004, column 13: {WORDS['order']}'1:2'")

    def test_a_line_without_end(self, file, monkeypatch):
        monkeypatch.setattr(letor, "_LONGEST_LINE", 1 << 23)
        message = message_of(file, bytes(3 << 23))
        assert message == f"{file} has a line of more than 8 MB; check that it is a text file."

    def test_a_byte_order_mark_is_no_column(self, file):
        message = message_of(file, BOM + b"x qid:1 1:1\n")
        assert message == f"{file}, line 1, column 1: {WORDS['label']}'x'."

    def test_names_after_a_byte_order_mark(self, file):
        data = load(file, BOM + b'# features = ["a", "b"]\n1 qid:1 1:1 2:1\n')
        assert data.feature_names == ("a", "b")

    @pytest.mark.parametrize(
        "names",
        [
            *(b"[1]", b'["a"', b'["\xff"]'),
            pytest.param(b"[" * 200_000, id="deep"),
        ],
    )
    def test_names_that_are_none(self, file, names):
        message = message_of(file, b"# features = " + names + b"\n" + ROW)
        assert message.startswith(f"{file}, line 1: expected a JSON list of names after ")

    def test_a_comment_that_only_begins_like_names(self, file):
        assert load(file, b"# features = 46\n" + ROW).feature_names is None

    def test_names_of_columns_are_for_frames(self, file):
        assert "features must be a number here" in message_of(file, ROW, features=["a"])


class TestWhatIsFine:
    @pytest.mark.parametrize(
        "content",
        [
            b"1 qid:1 1:2",
            b"1 qid:1 1:2\r",
            b"1 qid:1 1:2\r\n0 qid:1 1:3\r\n",
            BOM + ROW,
            BOM + b"\n# a\n" + ROW,
            b"\n\n1 qid:1 1:2\n\r\n \t\n0 qid:1 2:3\n\n",
            b"# heading\n" + ROW + b"  # more\n" + ROW,
            b"\t1\tqid:1\t1:2\t2:3\t\n",
            b"  1   qid:1   1:2   2:3   \n",
            b"1 qid:1 1:2#glued\n1 qid:1#glued\n",
            b"1 qid:1 1:2 # caf\xe9 \xff\x00\r # more\r\r\n",
            b"1 qid:1 1:2 #\n0 qid:1 1:3\n",
            b"0.5 qid:1 1:1\n2.75 qid:1 1:1\n1e1 qid:1 1:1\n-0 qid:1 1:1\n-0.00e-400 qid:1 1:1\n",
            b"0.1000000014901161193847656250000001 qid:1 1:1\n",
            b"1 qid:1 001:2 0000007:4\n",
            b"1 qid:1 1:5. 2:.5 3:+1 4:-.5E+2 5:-0 6:-0.0\n",
            "1 qid:naïve-☃-𝄞 1:1\n".encode(),
            b"1 qid:a:b:qid:c 1:1\n",
            b"1 qid:" + b"q" * 1_000 + b" 1:1\n",
            b"1 qid:1 1:1 #" + b"x" * 3 * PIECE + b"\n" + ROW,
            b"1 qid:1 1:1" + b" " * 3 * PIECE + b"2:1\n" + ROW,
        ],
        ids=lambda content: repr(content[:30])[2:-1],
    )
    def test_as_the_reference(self, file, content):
        assert compare(file, content) is None

    @pytest.mark.parametrize(
        ("ids", "expected"),
        [
            (["3", "10", "-2", "0"], np.array([3, 10, -2, 0])),
            (["007", "7"], np.array(["007", "7"])),
            (["1", "a"], np.array(["1", "a"])),
            (["-0"], np.array(["-0"])),
            (["+1"], np.array(["+1"])),
            (["1.0"], np.array(["1.0"])),
            (["9" * 18], np.array([10**18 - 1])),
            (["9" * 30], np.array(["9" * 30])),
        ],
    )
    def test_query_ids(self, file, ids, expected):
        data = load(file, "".join(f"1 qid:{name} 1:1\n" for name in ids).encode())
        assert_array_equal(data.query_ids, expected)
        assert data.query_ids.dtype == expected.dtype

    def test_absent_features(self, file):
        content = b"1 qid:1 2:5\n0 qid:1 1:1 4:2\n0 qid:1\n"
        zero = [[0, 5, 0, 0], [1, 0, 0, 2], [0, 0, 0, 0]]
        assert_array_equal(load(file, content).X, zero)
        expected = np.array(zero, np.float32)
        expected[expected == 0] = np.nan
        assert_array_equal(load(file, content, missing="nan").X, expected)
        assert load(file, content, missing="nan").notes == ()
        assert load(file, content, features=9).X.shape == (3, 9)
        assert compare(file, content, features=9, missing="nan") is None

    def test_zero_based(self, file):
        assert_array_equal(load(file, b"1 qid:1 0:5 2:6\n", zero_based=True).X, [[5, 0, 6]])
        for content in (b"1 qid:1 :5 1:3\n", b"1 qid:1  :5 \n", b"1 qid:1 0:1 :5 2:3\n"):
            assert compare(file, content, zero_based=True) == "index"

    def test_unjudged(self, file):
        # The value dropped is one that is read twice; the next row must not get it.
        content = b"-1 qid:3 1:16777217.00000000000000001 5:nan\n0 qid:1 1:5\n-1.0 qid:2 1:1\n"
        with pytest.warns(tr.DataWarning, match="2 documents without a judgement"):
            data = load(file, content, unjudged="drop", non_finite="keep")
        assert_array_equal(data.X, [[5, 0, 0, 0, 0]])
        assert_array_equal(data.query_ids, [1])
        assert len(data.notes) == 1
        kept = load(file, content.replace(b"nan", b"1"), unjudged="keep")
        assert_array_equal(kept.y, [-1, 0, -1])
        assert kept.notes == ()
        assert compare(file, content, unjudged="keep", non_finite="clip") is None

    def test_not_finite(self, file):
        content = b"1 qid:1 1:nan 2:inf 3:-1e39 4:3.4028235e38 5:1\n"
        with pytest.warns(tr.DataWarning) as said:
            data = load(file, content, non_finite="keep")
        assert_array_equal(data.X, np.float32([[np.nan, np.inf, -np.inf, LARGEST, 1]]))
        assert [str(one.message) for one in said] == [f"{file}: {note}" for note in data.notes]
        assert data.notes == (
            "1 whole number beyond 2^24 loses digits as float32.",
            "1 value is not a number (NaN).",
            "2 values are beyond a float32's range.",
        )
        with pytest.warns(tr.DataWarning):
            data = load(file, content, non_finite="clip")
        assert_array_equal(data.X, np.float32([[np.nan, LARGEST, -LARGEST, LARGEST, 1]]))

    @pytest.mark.parametrize(
        ("text", "loses"),
        [
            ("16777216", False),
            ("16777217", True),
            ("-16777217", True),
            ("+16777217.", True),
            ("16777217.000", True),
            ("0.16777217e8", True),
            ("16777217000E-3", True),
            (f"16777217.{'0' * 400}", True),
            (f"16777217{'0' * 400}e-400", True),
            ("16777217.5", False),
            ("16777217.000000001", False),  # not whole, though its float64 is
            (f"16777217.{'0' * 400}1", False),
            ("16777218", False),
            ("9007199254740992", False),
            ("9007199254740993", True),  # though its float64, 2^53, is a float32
            ("9007199254740993.5", False),
            ("1e10", False),
            ("1e11", True),
            ("18446744073709551616", False),
            ("18446744073709551617", True),
            (str(2**127), False),
            (str(2**127 + 1), True),
            ("3.4028235e38", True),
            ("3.40282346638528859811704183484516925440e38", False),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_whole_numbers_that_lose_digits(self, file, text, loses):
        content = f"1 qid:1 1:{text} 2:{text} 3:{text}\n0 qid:1 1:{text}\n".encode()
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            data = load(file, content)
        assert data.notes == (
            ("4 whole numbers beyond 2^24 lose digits as float32.",) if loses else ()
        )
        assert compare(file, content) is None
        dropped = content.replace(b"\n0", b"\n-1")
        assert compare(file, dropped, unjudged="drop") is None
        if not text.startswith("-"):
            label = f"{text} qid:1 1:1\n".encode()
            assert compare(file, label) is None
            assert len(quietly(file).notes) == loses

    def test_scattered_rows(self, file):
        content = b"0 qid:b 1:0 # 0\n1 qid:a 1:1\n2 qid:b 1:2 # 2\n3 qid:c 1:3 # 3\n4 qid:a 1:4\n"
        with pytest.warns(tr.DataWarning, match="The rows of 2 queries were scattered"):
            data = load(file, content)
        assert_array_equal(data.X[:, 0], [0, 2, 1, 4, 3])
        assert_array_equal(data.y, [0, 2, 1, 4, 3])
        assert_array_equal(data.qid, ["b", "b", "a", "a", "c"])
        assert list(data.comments) == [" 0", " 2", "", "", " 3"]
        assert_array_equal(data.in_source_order(data.y), [0, 1, 2, 3, 4])
        assert len(data.notes) == 1

    @quick
    @given(st.permutations(range(9)), st.integers(0, 3))
    def test_permuted_in_place(self, order, width):
        values = np.arange(9.0 * width, dtype=np.float32).reshape(9, width)
        expected = values[order]
        permute(values, np.array(order))
        assert_array_equal(values, expected)


class TestPieces:
    """Where a file is cut, and who parses the pieces, makes no difference."""

    def content(self, rows=300):
        chance = random.Random(1)
        lines = []
        for i in range(rows):
            columns = sorted(chance.sample(range(1, 20 + i // 20), chance.randrange(9)))
            values = (f"{i}", f"{i / 7:.3f}", "16777217.0000000001")
            features = " ".join(f"{c}:{chance.choice(values)}" for c in columns)
            comment = f" # {i}" if i % 3 else ""
            lines.append(f"{i % 5} qid:{i // chance.choice((9, 10))} {features}{comment}\n")
            lines.append("\n" * (i % 4 == 0))
        return "".join(lines).encode()

    @pytest.mark.parametrize("piece", [1, 2, 3, 64, 1000])
    @pytest.mark.parametrize("block", [1, 300, 1 << 20])
    def test_tiny(self, file, monkeypatch, piece, block):
        monkeypatch.setattr(letor, "_PIECE", piece)
        monkeypatch.setattr(letor, "_BLOCK", block)
        content = self.content(60 if piece < 4 else 300)
        assert compare(file, content) is None
        assert compare(file, BOM + content, missing="nan", max_features=50) is None
        bad = content.replace(b"\n3 qid", b"\n-3 qid")
        assert compare(file, content + bad) == "label range"

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_threads(self, file, monkeypatch, threads):
        monkeypatch.setattr(letor, "_PIECE", 200)
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(threads)
            assert compare(file, self.content()) is None
        finally:
            torch.set_num_threads(before)

    def test_width_grows_after_the_first_piece(self, file):
        content = (b"1 qid:1 1:1 3:2 #".ljust(99) + b"\n") * (PIECE // 80)
        data = load(file, content + b"0 qid:1 7:1.5\n")
        assert data.X.shape == (PIECE // 80 + 1, 7)
        assert (data.X[:-1] == np.float32([1, 0, 2, 0, 0, 0, 0])).all()
        assert_array_equal(data.X[-1], np.float32([0, 0, 0, 0, 0, 0, 1.5]))

    def test_more_rows_than_a_block_holds(self, file):
        content = b"".join(b"%d qid:%d #%d\n" % (i % 5, i // 7, i) for i in range(90))
        content += b"1 qid:x 90000:1.5\n" + content.replace(b"qid:", b"qid:9")
        assert compare(file, content) is None
        assert compare(file, content + b"\n2 qid:1 2:1 1:1\n") == "order"

    @pytest.mark.parametrize("unjudged", ["keep", "drop"])
    def test_more_doubtful_values_than_are_noted_at_a_time(self, file, unjudged):
        lines = []
        for i in range(4_000):
            number = 16777217 + 2 * i
            value = f"{number}.{'0' * 20}"
            lines.append(f"{value}{i % 2} qid:{i // 100} 1:{value}{i % 2} 2:{i}\n")
            lines.append(f"-1 qid:{i // 100} 1:{value}1 2:{value}\n")
        content = "".join(lines).encode()
        assert compare(file, content, unjudged=unjudged) is None


# Files, and what can happen to them

blanks = st.sampled_from([" ", " ", " ", "  ", "\t", " \t"])
labels = st.sampled_from(["0", "1", "2", "4", "0.5", "1e0", "+3", "3.", "-0", "-1"])
ids = st.sampled_from(["1", "1", "2", "2", "30", "007", "q-7", "x:y", "é", "-5", "9" * 18])
remarks = st.one_of(
    st.just(b""),
    st.just(b"# docid = G1"),
    st.binary(max_size=12).map(lambda text: b"#" + text.replace(b"\n", b"")),
)


@st.composite
def lines(draw):
    """A line that says what a line should, in one of the many ways to say it."""
    end = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]))
    if draw(st.integers(0, 9)) == 9:
        return draw(st.sampled_from([b"", b" ", b"\t \t", b"# heading", b" #", b"##\xff\0"])) + end
    parts = [draw(st.sampled_from(["", "", " "])), draw(labels), draw(blanks), "qid:", draw(ids)]
    for index in sorted(draw(st.sets(st.integers(1, 30), max_size=6))):
        parts += [draw(blanks), str(index), ":", draw(numbers)]
    parts.append(draw(st.sampled_from(["", "", " "])))
    return "".join(parts).encode() + draw(remarks) + end


@st.composite
def files(draw):
    content = b"".join(draw(st.lists(lines(), min_size=1, max_size=8)))
    start = draw(st.sampled_from([b"", b"", b"", BOM]))
    return start + (content if draw(st.booleans()) else content.removesuffix(b"\n"))


choices = st.fixed_dictionaries(
    {
        "zero_based": st.booleans(),
        "missing": st.sampled_from(["zero", "nan"]),
        "unjudged": st.sampled_from(["error", "keep", "drop", "drop"]),
        "non_finite": st.sampled_from(["error", "keep", "clip"]),
        "features": st.sampled_from([None, None, None, 25, 40]),
        "max_features": st.sampled_from([40, 999]),
    }
)
SPECIAL = [
    *(bytes([byte]) for byte in b"\0\t\n\v\f\r #:.-+_eE0159\x7f\x80\xc3\xe9\xff"),
    *b"nan -inf Infinity 1e39 1e-46 0x1 qid: 31:5 0:1 12345678:1 00000000 7777777777777777".split(),
    *(b" 31:5 ", b" 0:1", b" 12345678:1", b" 40:16777217.000000000000001 ", b"3 qid:2 4:1\n"),
    *(b"\r\n", b"\n\n", b"\n-1 ", BOM, "é".encode(), b"\xed\xa0\x80", b"\xc0\x80", b"\xff\xfe"),
    b" 1:3.4028235677973366e38",
]


def mutated(content, chance):
    """A file after one to three accidents, most of them harmful."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        a, b = sorted(chance.randrange(len(content) + 1) for _ in range(2))
        near = min(b, a + chance.choice((1, 1, 2, 8)))
        accident = chance.randrange(13)
        if accident == 0 and near > a:  # a bit flips
            flipped = content[a] ^ 1 << chance.randrange(8)
            content = content[:a] + bytes([flipped]) + content[a + 1 :]
        elif accident == 1:
            content = content[:a] + content[near:]
        elif accident == 2:
            content = content[:a] + bytes([chance.randrange(256)]) + content[a:]
        elif accident == 3:  # two pieces trade places
            content = content[:a] + content[near:b] + content[a:near] + content[b:]
        elif accident == 4:
            content = content[: chance.choice((a, b, max(len(content) - 3, 0)))]
        elif accident == 5:
            content = content[:b] + content[a:b] + content[b:]
        elif accident <= 7:
            content = content[:a] + chance.choice(SPECIAL) + content[a:]
        elif accident <= 9:  # digits and blanks change
            old, new = chance.choice(((b" ", b"\t"), (b" ", b"  "), (b"1", b"7"), (b"0", b"03")))
            content = content[:a] + content[a:].replace(old, new, 1)
        else:
            content = b"\n".join(shuffled(content.split(b"\n"), chance))
    return content


def shuffled(rows, chance):
    """Lines, two of them swapped, or one of them twice."""
    a, b = (chance.randrange(len(rows)) for _ in range(2))
    rows[a], rows[b] = rows[b], chance.choice((rows[a], rows[b]))
    return rows


def fuzz(path, content, chosen, sizes, seed, mutations):
    """Compare a file and its mutations with the reference; what was wrong with each."""
    chance = random.Random(seed)
    piece, block = sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_PIECE", piece)
        patch.setattr(letor, "_BLOCK", block)
        for i in range(mutations):
            damaged = mutated(content, chance) if i else content
            try:
                yield compare(path, damaged, **chosen)
            except BaseException as error:
                error.add_note(f"content: {damaged!r}\nchoices: {chosen}, sizes: {sizes}")
                raise


inputs = given(
    files(), choices, st.sampled_from([(1 << 12, 1 << 20), (64, 4), (9, 300)]), st.integers(0)
)


class TestDamagedFiles:
    @settings(deadline=None, max_examples=50)
    @inputs
    def test_same_outcome_as_the_reference(self, file, content, chosen, sizes, seed):
        for _ in fuzz(file, content, chosen, sizes, seed, mutations=20):
            pass

    @pytest.mark.slow
    def test_100_000_inputs(self, file, capsys):
        found = {}

        @settings(
            deadline=None,
            max_examples=2_500,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @inputs
        def run(content, chosen, sizes, seed):
            for kind in fuzz(file, content, chosen, sizes, seed, mutations=44):
                found[kind] = found.get(kind, 0) + 1

        run()
        total = sum(found.values())
        with capsys.disabled():
            print(f"\n{total:,} inputs, {found.pop(None, 0):,} valid; errors by kind: {found}")
        assert total >= 100_000
        assert found.keys() >= WORDS.keys() - {"id length", "utf-16"}
