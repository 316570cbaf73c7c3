"""Counter-based random numbers: number i of a stream is a hash of seed, stream and i.

Ties and noise do not depend on the number of threads, and are the same on CPU and GPU. The hash is
the output function of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
"""

import sys
from typing import Any

import numpy as np

from twinrank.support.arrays import Array, as_float, is_tensor, namespace
from twinrank.support.errors import InputError

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_WORD_1, _WORD_2 = 0x7FEB352D, 0x846CA68B
_LOW_34 = 2**34 - 1
_LOW_37 = 2**37 - 1
_LOW_33 = 2**33 - 1
_LOW_52 = 2**52 - 1

TIES, NOISE = 0, 1
"""The streams of a seed: for breaking ties and for perturbing scores."""


def random_bits(seed: Any, stream: Any, index: Any) -> Any:
    """64 random bits (an int64) for each index of a stream.

    The arguments are int64 scalars in compiled loops, or NumPy arrays or torch tensors. All of them
    wrap on overflow, and the masks make the shifts logical.
    """
    z = seed + (2 * index + stream + 1) * _GOLDEN
    z = (z ^ ((z >> 30) & _LOW_34)) * _MIX_1
    z = (z ^ ((z >> 27) & _LOW_37)) * _MIX_2
    return z ^ ((z >> 31) & _LOW_33)


def random_word(first: Any, second: Any, index: Any) -> Any:
    """32 random bits (a uint32) for each index, for compiled loops over many values.

    SIMD units multiply 32-bit words several times faster than 64-bit words. `first` is the start
    and `second` the step of a sequence, which Wellons' lowbias32 hashes (hash-prospector, 2018).
    """
    x = np.uint32(first + index * (second | np.uint32(1)))
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(_WORD_1))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(_WORD_2))
    return np.uint32(x ^ (x >> np.uint32(16)))


def gumbel_noise(seed: Any, index: Array) -> Array:
    """Standard Gumbel noise −log(−log u) for each index of an array."""
    xp = namespace(index)
    bits = random_bits(seed, NOISE, index)
    # 52 bits plus one half, so that u is strictly between 0 and 1.
    uniform = (as_float((bits >> 12) & _LOW_52) + 0.5) * 2.0**-52
    return -xp.log(-xp.log(uniform))


def draw_seed(generator: Any, like: Any) -> Any:
    """Draw a seed from a torch or NumPy generator, or from the global generator for `like`.

    The seed is an int. From a generator of the device of `like` it is a tensor there, which the
    host does not wait for. A tensor in place of a generator is the seed itself.
    """
    top = 2**62
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        drawn = torch.empty((), dtype=torch.int64, device=generator.device)
        generator = drawn.random_(0, top, generator=generator)
    if is_tensor(generator):
        stays = is_tensor(like) and generator.device == like.device and like.device.type != "cpu"
        return generator if stays else int(generator)
    if generator is None:
        if is_tensor(like):
            return int(torch.randint(top, ()))  # type: ignore[union-attr]
        return int(np.random.randint(top))  # noqa: NPY002 (the global generator, on purpose)
    if hasattr(generator, "integers"):
        return int(generator.integers(top))
    raise InputError(
        f"generator must be a torch.Generator, a numpy.random.Generator or None, not {generator!r}."
    )
