"""Learn an embedding in which images of one class are close to each other.

    pip install twinrank pytorch-metric-learning
    python examples/metric_learning.py                        # scikit-learn's 8×8 digits
    python examples/metric_learning.py --images CARS196       # a folder with one folder per class
    python examples/metric_learning.py --search               # temperature and noise, on digits

The script compares TwinRank's loss on average precision with losses of pytorch-metric-learning.
With digits, it trains on the first half of the images and searches the second half, which has other
writers. With a folder, it trains on the first half of the classes and searches the other classes,
as is usual for CARS196. (Five classes of digits are too few for that: every loss makes the other
five worse.)

Recall@1 is the share of images whose nearest neighbour has the same class. MAP@R (Musgrave et al.
2020) is average precision over the first R neighbours, where R is the number of other images of the
class. All losses use the same seeds, batches and steps, and their own default settings. The
networks are small. For results like those in publications, replace `network` by a pre-trained one.

`--search` compares settings of EmbeddingRankingLoss on validation data. It trains on two thirds of
the training half and searches the last third, and then the first third.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import twinrank as tr
from twinrank.embeddings import EmbeddingRankingLoss

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".webp"}


def digits() -> tuple[Tensor, Tensor]:
    """1,797 handwritten digits of 8×8 pixels [images, 1, 8, 8], and their classes."""
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = torch.from_numpy(data.images * 255 / 16).to(torch.uint8)
    return pixels[:, None], torch.from_numpy(data.target)


def folder_of_images(folder: Path, size: int) -> tuple[Tensor, Tensor]:
    """Images [images, 3, size, size] of a folder with one folder per class, and their classes."""
    from PIL import Image

    if not folder.is_dir():
        raise SystemExit(f"{folder} is not a folder")
    paths = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in SUFFIXES)
    classes = sorted({path.parent for path in paths})
    images, labels = [], []
    for path in paths:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB").resize((size, size)))
        images.append(torch.from_numpy(pixels).permute(2, 0, 1))
        labels.append(classes.index(path.parent))
    if len(classes) < 4:
        raise SystemExit(
            f"{folder} has {len(classes)} folders of images, but needs at least four: two classes "
            f"to train on and two to search"
        )
    return torch.stack(images), torch.tensor(labels)


def network(images: Tensor, dimensions: int = 32) -> nn.Module:
    """A small net: fully connected for grey images, convolutional for colour images."""
    channels, height, width = images.shape[1:]
    if channels == 1:
        pixels = height * width
        return nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, 128), nn.ReLU(), nn.Linear(128, dimensions)
        )
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, dimensions),
    )  # fmt: skip


def as_input(images: Tensor) -> Tensor:
    """Map pixels from 0…255 to −1…1."""
    return images.float() / 127.5 - 1


def batches(labels: Tensor, steps: int, size: int, seed: int) -> Iterator[Tensor]:
    """Rows of each batch: several classes, with the same number of images each."""
    random = torch.Generator().manual_seed(seed)
    rows = {int(label): torch.where(labels == label)[0] for label in labels.unique()}
    rows = {label: of_class for label, of_class in rows.items() if len(of_class) > 1}
    if not rows:
        raise SystemExit("no class has two or more images, so there are no pairs to learn from")
    each = min(max(4, size // len(rows)), *(len(of_class) for of_class in rows.values()))
    for _ in range(steps):
        order = torch.randperm(len(rows), generator=random)[: max(2, size // each)].tolist()
        chosen = [list(rows.values())[i] for i in order]
        yield torch.cat([of[torch.randperm(len(of), generator=random)[:each]] for of in chosen])


def trained(
    loss: Callable[..., Tensor] | None, images: Tensor, labels: Tensor, options: Any, seed: int
) -> nn.Module:
    """A network trained with this loss, or an untrained one if there is none."""
    torch.manual_seed(seed)
    net = network(images)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for rows in batches(labels, options.steps if loss else 0, options.batch, seed):
        optimiser.zero_grad()
        loss(net(as_input(images[rows])), labels[rows]).backward()  # type: ignore[misc]
        optimiser.step()
    return net.eval()


def retrieval(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """Recall@1 and MAP@R of every item as a query for the others of its class."""
    units = normalize(embeddings.double(), dim=1)
    values = {name: np.full(len(labels), np.nan) for name in ("recall@1", "MAP@R")}
    for label in labels.unique():  # all queries of a class have the same R
        queries = torch.where(labels == label)[0]
        if len(queries) < 2:
            continue  # no other image of the class
        others = torch.arange(len(labels)) != queries[:, None]
        scores = (units[queries] @ units.T)[others].numpy()
        relevant = (labels == label).expand(len(queries), -1)[others].numpy()
        lists = tr.Lists.from_mask(others)
        values["recall@1"][queries] = tr.measure("P@1")(scores, relevant, lists)
        values["MAP@R"][queries] = tr.measure(f"AP@{len(queries) - 1}")(scores, relevant, lists)
    return values


def losses() -> dict[str, Callable[..., Tensor] | None]:
    """The losses to compare, by name."""
    try:
        from pytorch_metric_learning import losses as pml_losses
    except ImportError:
        raise SystemExit(
            "the baselines need pytorch-metric-learning: pip install pytorch-metric-learning"
        ) from None
    return {
        "not trained": None,
        "ContrastiveLoss": pml_losses.ContrastiveLoss(),
        "TripletMarginLoss": pml_losses.TripletMarginLoss(),
        "SmoothAPLoss": pml_losses.SmoothAPLoss(),
        "EmbeddingRankingLoss AP": EmbeddingRankingLoss("AP"),
    }


def search_losses() -> dict[str, Callable[..., Tensor] | None]:
    """Settings of EmbeddingRankingLoss, and a baseline."""
    from pytorch_metric_learning import losses as pml_losses

    noises = {0: 1, 1: 8, 3: 8}  # perturbation and samples
    return {"ContrastiveLoss": pml_losses.ContrastiveLoss()} | {
        f"temperature {t}, perturbation {noise}": EmbeddingRankingLoss(
            temperature=t, perturbation=noise, samples=samples
        )
        for t in (0.05, 0.1, 0.2, 0.4)
        for noise, samples in noises.items()
    }


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="folder with one folder per class"
    )
    parser.add_argument(
        "--size", type=int, default=64, help="width and height in pixels (default 64)"
    )
    parser.add_argument("--batch", type=int, default=100, help="images per batch (default 100)")
    parser.add_argument("--steps", type=int, help="training steps (default 200)")
    parser.add_argument("--seeds", type=int, help="training runs per loss (default 3)")
    parser.add_argument("--search", action="store_true", help="compare settings on validation data")
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    options = parser.parse_args()
    steps, seeds = (5, 1) if options.quick else (200, 3)
    options.steps, options.seeds = options.steps or steps, options.seeds or seeds
    return options


def main() -> None:
    """Train with every loss and print a table."""
    options = arguments()
    images, labels = folder_of_images(options.images, options.size) if options.images else digits()
    if options.images:
        train = labels < (labels.max() + 1) // 2
    else:
        train = torch.arange(len(labels)) < len(labels) // 2
    if options.search:
        images, labels = images[train], labels[train]
        number = torch.arange(len(labels))
        parts = [number < len(labels) * 2 // 3, number >= len(labels) // 3]
    else:
        parts = [train]
    results = {}
    for name, loss in (search_losses() if options.search else losses()).items():
        by_part = [tested(loss, images, labels, part, options) for part in parts]
        results[name] = {key: np.concatenate([v[key] for v in by_part]) for key in by_part[0]}
        if options.search:
            means = "  ".join(f"{key} {v.mean():.4f}" for key, v in results[name].items())
            print(f"{name:36}{means}", flush=True)
    if options.search:
        return
    print(
        f"Trained on {int(train.sum())} images of {len(labels[train].unique())} classes, "
        f"tested on {int((~train).sum())} images of {len(labels[~train].unique())} classes; "
        f"{options.steps} steps; mean of {options.seeds} seed(s)\n"
    )
    print(tr.compare(results, correction="holm"))


def tested(
    loss: Callable[..., Tensor] | None, images: Tensor, labels: Tensor, train: Tensor, options: Any
) -> dict[str, Any]:
    """The values of each image that is not for training, averaged over seeds."""
    runs = []
    for seed in range(options.seeds):
        net = trained(loss, images[train], labels[train], options, seed)
        with torch.no_grad():
            parts = [net(as_input(part)) for part in images[~train].split(256)]
        runs.append(retrieval(torch.cat(parts), labels[~train]))
    return {key: np.mean([run[key] for run in runs], axis=0) for key in runs[0]}


if __name__ == "__main__":
    main()
