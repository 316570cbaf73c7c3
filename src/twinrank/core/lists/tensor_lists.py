"""Lists on a device: their offsets as tensors, and reductions per list without a copy."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from twinrank.core.lists import Lists


def tensors_of(lists: "Lists", device: torch.device) -> tuple[Tensor, Tensor]:
    """The offsets and the list of each document, on a device.

    Only the offsets are copied, once for each `Lists`, and the host does not wait for them. Those
    of repeated lists are computed on the device from the lists that were repeated.
    """
    repeated, times = lists._derived.get("tiled", (lambda: None, 0))
    if (once := repeated()) is not None:
        first = once._tensors(device)[0]
        shift = torch.arange(times, device=device)[:, None] * once.documents
        offsets = torch.cat([first[:1], (first[1:] + shift).reshape(-1)])
    else:
        host = torch.from_numpy(lists.offsets.copy())
        host = host.pin_memory() if device.type == "cuda" else host
        offsets = host.to(device, non_blocking=True)
    number = torch.arange(len(lists), device=device)
    return offsets, torch.repeat_interleave(number, offsets.diff(), output_size=lists.documents)


def reduce_lists(x: Tensor, name: str, offsets: Tensor, index: Tensor) -> Tensor:
    """The sum, max or min of each list; not defined for the max and min of an empty list."""
    if x.device.type in ("cpu", "cuda"):  # in a fixed order, so that the bits repeat
        initial = 0 if name == "sum" else None
        return torch.segment_reduce(x, name, offsets=offsets, initial=initial)
    return scattered(x, name, offsets, index)


def scattered(x: Tensor, name: str, offsets: Tensor, index: Tensor) -> Tensor:
    """As `reduce_lists`, for devices without segment_reduce."""
    nothing = torch.zeros(offsets.shape[0] - 1, dtype=x.dtype, device=x.device)
    if name == "sum":
        return nothing.index_add(0, index, x)
    return nothing.scatter_reduce(0, index, x, f"a{name}", include_self=False)
