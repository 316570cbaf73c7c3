"""Architectures of nets as values: the paper's R5, CE5, R4.L and CE4.L, and others."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse

ACTIVATIONS = ("relu", "celu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu")
NORMS = ("batch", "query", "layer", "none")
CONTEXTS = ("none", "pool", "attention")
EMBEDDINGS = ("none", "linear", "periodic")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A feed-forward scorer: `depth` hidden layers of `width`, then one number.

    The paper names its four by activation (R: ReLU, CE: CELU) and by what the last layer does: "5"
    has an activation on the score too, "4.L" a linear last layer (Yu 2020).
    """

    width: int = 100
    depth: int = 4
    activation: str = "celu"
    last_activation: bool = False
    """Whether the score itself goes through the activation."""
    dropout: float = 0.01
    """Before the hidden layers from the second on."""
    norm: str = "batch"
    """Before each activation: "batch" (running statistics, so that a score does not depend on
    the other documents), "query" (statistics of the document's query, as in the paper), "layer"."""
    last_norm: bool = False
    """Whether the score is normalised as well."""
    context: str = "none"
    """How a document sees the others of its query, after the first hidden layer: "pool" (their
    mean and maximum) or "attention"."""
    heads: int = 4
    """Heads of the attention; `width` must be a multiple of it."""
    blocks: int = 1
    """Blocks of attention, one after the other."""
    induced: int = 0
    """Points through which documents attend to each other, at a cost that grows linearly with the
    length of the list. 0 means that they attend directly, at a quadratic cost."""
    shared: bool = False
    """Whether the nets of an ensemble share the weights of their hidden layers."""
    embedding: str = "none"
    """How each numeric feature becomes `embedding_size` inputs: "linear" or "periodic"."""
    embedding_size: int = 8

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, not {value!r}."
                )
        for name, known in _WORDS.items():
            if getattr(self, name) not in known:
                raise InputError(argument=name, value=getattr(self, name), choices=known)
        for name in ("last_activation", "last_norm", "shared"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}.")
        plain = isinstance(self.dropout, int | float) and not isinstance(self.dropout, bool)
        if not plain or not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1, not {self.dropout!r}.")
        self._check_combination()

    def _check_combination(self) -> None:
        """Raise an error for options that contradict each other."""
        for name, needed, missing in (
            ("heads", "context=attention", self.context != "attention"),
            ("blocks", "context=attention", self.context != "attention"),
            ("induced", "context=attention", self.context != "attention"),
            ("embedding_size", "embedding=linear or periodic", self.embedding == "none"),
        ):
            if missing and getattr(self, name) != getattr(type(self), name):
                raise InputError(f"{name} has no effect without {needed}: set both or neither.")
        least = {"pool": 2, "attention": 1}.get(self.context, 0)
        if self.depth < least:
            raise InputError(
                f"context={self.context} needs a depth of at least {least}, not {self.depth}: it "
                f"follows the first hidden layer."
            )
        if self.context == "pool" and self.norm == "query":
            raise InputError(
                "context=pool has no effect with norm=query, which removes the values that all "
                "documents of a query share; use another norm or context=attention."
            )
        if self.context == "attention" and self.width % self.heads:
            raise InputError(
                f"width must be a multiple of heads, but {self.width} is not one of {self.heads}."
            )
        if self.shared and not self.depth:
            raise InputError("shared=true needs a depth of at least 1: hidden layers are shared.")

    @property
    def per_query(self) -> bool:
        """Whether a score depends on the other documents of its query."""
        return self.norm == "query" or self.context != "none"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> "Architecture":
        """What `to_json` wrote, checked."""
        if not isinstance(data, dict):
            raise InputError("An architecture must be a JSON object.")
        known = [f.name for f in fields(cls)]
        for name in data:
            if name not in known:
                raise InputError(unknown("part of an architecture", str(name), known))
        for name in known:
            if name not in data and name not in _ADDED:
                raise InputError(f"The architecture is damaged: it has no {name}.")
        return cls(**data)


_LEAST = {
    "width": 1,
    "depth": 0,
    "heads": 1,
    "blocks": 1,
    "induced": 0,
    "embedding_size": 1,
}
_WORDS = {
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "context": CONTEXTS,
    "embedding": EMBEDDINGS,
}
_ADDED = ("context", "heads", "blocks", "induced", "shared", "embedding", "embedding_size")
"""Options that older saved models lack; they have the defaults."""

_PAPER: dict[str, Any] = {"norm": "query", "last_norm": True}
"""The paper's norms: statistics of the document's query, on the score as well."""

ARCHITECTURES = {
    "R5": Architecture(activation="relu", last_activation=True),
    "CE5": Architecture(activation="celu", last_activation=True),
    "R4.L": Architecture(activation="relu"),
    "CE4.L": Architecture(activation="celu"),
    "Small": Architecture(width=64, depth=3, activation="relu", dropout=0.3),
    "Linear": Architecture(depth=0, dropout=0.0, norm="none"),
    "MLP": Architecture(activation="relu"),
}


def architecture(name: "str | Architecture", mode: str = "default") -> Architecture:
    """The architecture of this name, with options changed: `CE4.L`, `MLP(width=64)`.

    An `Architecture` has its own norms in every mode.

    >>> architecture("CE4.L(dropout=0.3)").dropout
    0.3
    """
    if mode not in ("default", "paper"):
        raise InputError(argument="mode", value=mode, choices=["default", "paper"])
    if isinstance(name, Architecture):
        return name
    head, bracket, rest = str(name).partition("(")
    if head.strip() not in ARCHITECTURES:
        raise InputError(
            unknown("architecture", head.strip(), ARCHITECTURES),
            argument="architecture",
            value=name,
            choices=ARCHITECTURES,
        )
    chosen = ARCHITECTURES[head.strip()]
    if mode == "paper":
        chosen = replace(chosen, **_PAPER)
    if not bracket:
        return chosen
    term = parse(f"X({rest}")
    if term.cutoff is not None:
        raise InputError(f"An architecture has no cutoff, but {name!r} sets one.")
    check_options(head.strip(), term, [f.name for f in fields(Architecture)])
    options: dict[str, Any] = dict(term.options)
    for option in _WORDS:
        if option in options and options[option] is None:  # the notation reads `none` as None
            options[option] = "none"
    return replace(chosen, **options)  # explicit options win over the mode


def is_custom(value: Any) -> bool:
    """True if `architecture=` is a user's own net: a module, a function, or an import path."""
    return ":" in value if isinstance(value, str) else not isinstance(value, Architecture)
