"""A trained net as a model: `model.safetensors` beside `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import from_json as transform_from_json
from twinrank.data.transforms.combined import except_columns
from twinrank.learning.models.architecture import Architecture
from twinrank.learning.models.ensemble import (
    CustomNet,
    Net,
    build_net,
    import_path,
    models_of,
    resolve_architecture,
)
from twinrank.learning.models.saved_model import CONFIG, Model, damaged, read_part
from twinrank.learning.models.scorer import checked_categories, score_all
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.deployment.onnx_graph import Graph

WEIGHTS = "model.safetensors"
SCORED_TOGETHER = 12_000
"""Documents that are scored in one batch."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NetModel(Model):
    """A net, or an ensemble of nets, with its transform."""

    kind: ClassVar[str] = "net"
    net: Net
    custom: str | None = None
    """The import path of a user's own net."""
    importances: tuple[float, ...] | None = None
    """The importance of each feature in the training data; unknown in models that lack it."""

    @property
    def per_query(self) -> bool:
        """True if a score depends on the other documents of its query."""
        return self.net.per_query or self.transform.per_query

    def score(self, data: Dataset, n_jobs: int | None = None) -> npt.NDArray[np.float32]:  # noqa: ARG002
        """The score of every document, batch by batch."""
        columns = score_all(self.net, self.encoding(data), self.transform, SCORED_TOGETHER)
        mean = torch.from_numpy(columns).mean(dim=1)  # the same bits as the ensemble's own mean
        return np.asarray(mean, np.float32)

    @property
    def categories(self) -> Mapping[int, int]:
        """The number of categories of each categorical column."""
        return self.net.categories

    def add_to(self, graph: "Graph") -> str:
        """Append the transforms and the net to an ONNX graph."""
        if any(isinstance(net, CustomNet) for net in models_of(self.net)):
            raise InputError(
                f"{self.custom} is your own net: export it with torch.onnx.export. TwinRank "
                f"exports its own architectures."
            )
        from twinrank.deployment.onnx_layers import add_scores

        return add_scores(graph, self, models_of(self.net))

    def graph_metadata(self) -> dict[str, Any]:
        """The architecture and the categories."""
        about = self.parts()[0]
        return {name: about[name] for name in ("architecture", "categories")}

    def parts(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The architecture, and the weights as safetensors."""
        state = self.net.state_dict()
        # Copies, since safetensors refuses weights that share memory, as a user's tied ones do.
        tensors = {name: t.detach().cpu().clone().contiguous() for name, t in state.items()}
        chosen = self.net.architecture
        return {
            "architecture": {"custom": self.custom} if chosen is None else chosen.to_json(),
            "categories": {str(c): n for c, n in self.net.categories.items()},
            "importances": None if self.importances is None else list(self.importances),
        }, {WEIGHTS: save(tensors)}

    @classmethod
    def from_parts(
        cls, config: dict[str, Any], folder: Path, common: dict[str, Any], architecture: Any
    ) -> Self:
        """Read the weights; nothing is built before all shapes are known to fit."""
        categories = config.get("categories")
        if not isinstance(categories, dict):
            raise damaged("categories must be an object")
        counts = checked_categories(categories, common["features"])
        if (known := common["encoding"].counts) and known != counts:
            raise damaged("encoding does not fit the categories")
        transform = except_columns(transform_from_json(config.get("transform")), counts)
        transform.check_features(common["features"])
        inputs = transform.outputs(common["features"])
        tensors = _read_tensors(read_part(folder, WEIGHTS, config))
        described = config.get("architecture")
        custom = described.get("custom") if isinstance(described, dict) else None
        if custom is not None:
            net = _custom_net(custom, architecture, inputs, common, tensors)
        elif architecture is not None:
            raise InputError(
                "It is not a net of your own; load it without ", Argument("architecture"), "."
            )
        else:
            own = Architecture.from_json(described)
            net = _own_net(own, inputs, counts, common["ensemble_size"], tensors)
        known = _importances(config.get("importances"), common["features"])
        return cls(net=net.eval(), transform=transform, custom=custom, importances=known, **common)


def _importances(values: Any, features: int) -> tuple[float, ...] | None:
    """The importances in a configuration, if it has them."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != features:
        raise damaged(f"importances must be a list of {features} numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise damaged(f"importances must be numbers from 0 to 1, not {value!r}")
    return tuple(map(float, values))


def _read_tensors(content: bytes) -> dict[str, torch.Tensor]:
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{WEIGHTS} is damaged ({error}).") from error
    # In format 1, an ensemble's nets were called members.
    return {
        f"models.{name.removeprefix('members.')}" if name.startswith("members.") else name: tensor
        for name, tensor in tensors.items()
    }


def _custom_net(
    custom: Any,
    architecture: Any,
    inputs: int,
    common: Mapping[str, Any],
    tensors: dict[str, torch.Tensor],
) -> Net:
    if architecture is None:
        raise InputError(
            "Its net is your own. Pass ",
            Argument("architecture", custom),
            "; TwinRank never imports code by itself.",
        )
    chosen = resolve_architecture(architecture)
    size = common["ensemble_size"]
    if isinstance(chosen, Architecture):
        raise InputError(f"Its net is your own, {custom}, not {architecture}.")
    net = build_net(inputs, chosen, size, generator=torch.Generator())
    _check_tensors(tensors, net.state_dict())
    net.load_state_dict(tensors)
    return net


def _own_net(
    chosen: Architecture,
    inputs: int,
    categories: Mapping[int, int],
    size: int,
    tensors: dict[str, torch.Tensor],
) -> Net:
    nets, sizes = size, [inputs - len(categories), chosen.width if chosen.depth else 0]
    if chosen.shared:
        nets, sizes = 1, [*sizes, size]
    least = [max(chosen.depth, 1) * nets, len(categories)]
    if chosen.context == "attention":
        least.append(chosen.blocks * nets)
        sizes.append(chosen.induced)
    if chosen.embedding != "none":
        sizes.append(chosen.embedding_size)
    if max(least) > len(tensors):
        raise InputError(f"{WEIGHTS} has {len(tensors)} tensors, too few for {CONFIG}.")
    widest = max((max(t.shape, default=0) for t in tensors.values()), default=0)
    if max(sizes) > widest:
        raise InputError(f"{WEIGHTS} holds weights of another shape than {CONFIG} says.")
    with torch.device("meta"):
        expected = build_net(inputs, chosen, size, categories).state_dict()
    _check_tensors(tensors, expected)
    net = build_net(inputs, chosen, size, categories, torch.Generator())
    net.load_state_dict(tensors)
    return net


def _check_tensors(tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name in sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if name in expected else "has an unknown"
        raise InputError(f"{WEIGHTS} {what} tensor {name}.")
    for name in expected:
        tensor, shape, kind = tensors[name], expected[name].shape, expected[name].dtype
        if tensor.shape != shape or tensor.dtype != kind:
            raise InputError(
                f"{WEIGHTS}: {name} has shape {tuple(tensor.shape)} and type {tensor.dtype}, "
                f"the architecture needs {tuple(shape)} and {kind}."
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{WEIGHTS}: {name} holds values that are not finite.")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise InputError(f"{WEIGHTS}: {name} holds a negative variance.")


def path_of(chosen: Any) -> str | None:
    """The import path of a user's own net; None for TwinRank's architectures."""
    return None if isinstance(chosen, Architecture) else import_path(chosen)
