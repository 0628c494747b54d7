"""MNIST, images of handwritten digits: reading and fetching them, and giving each worker its share.

The files beside this module are a sample, in the format of the whole database.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import math
import os
import urllib.request
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

SIDE, CLASSES = 28, 10
PIXELS = SIDE * SIDE
SAMPLE, USUAL = Path(__file__).resolve().parent, Path("MNIST_data")
MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
FILES = {  # the database: file -> SHA-256 of its uncompressed content
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class InputError(Exception):
    """What the user gave cannot be used; the message says why."""


def choose(folder: Path | None, mirror: str | None) -> list[Any]:
    """The digits in the user's folder, fetched first where wanted, else the sample."""
    place = folder or USUAL
    if mirror:
        download(place, mirror)
    if folder or place.exists():
        return load(place)
    digits = load(SAMPLE)
    count = len(digits[1]) + len(digits[3])
    print(f"No folder {place}: using the SAMPLE of {count} digits, not the full MNIST", flush=True)
    return digits


def load(folder: Path) -> list[Any]:
    """Training images, their labels, test images and theirs, from the four IDX files, gzipped or not.

    Images are rows of 784 grey pixels from 0 to 255, labels are numbers from 0 to 9. Raises InputError.
    """
    arrays = [read_idx(find_idx(folder, name)) for name in FILES]
    for use, images, labels in zip(("training", "test"), arrays[::2], arrays[1::2]):
        if not len(images) or images.shape != (*labels.shape, SIDE, SIDE) or labels.max() >= CLASSES:
            found = f"images {images.shape} and labels {labels.shape} up to {labels.max(initial=0)}"
            raise InputError(f"{folder}: {use} data: {found} instead of (n, 28, 28) and (n,) up to 9")
    return [array.reshape(-1, PIXELS) if array.ndim == 3 else array for array in arrays]


def find_idx(folder: Path, name: str) -> Path:
    """The gzipped file if there is one, else the plain one."""
    gzipped = folder / f"{name}.gz"
    return gzipped if gzipped.exists() else folder / name


def read_idx(path: Path) -> Any:
    """The array in an IDX file: bytes 0, 0, 8 (its values are bytes) and the number of dimensions, the size
    of each as 32 bits, big-endian, then the values. The format is described with the MNIST database.
    """
    with reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic = bytes([0, 0, 8, 3 if "idx3" in path.name else 1])
        if content[:4] != magic:
            raise ValueError(f"starts with 0x{content[:4].hex()}, not with 0x{magic.hex()}")
        start = 4 + 4 * magic[3]
        shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
        if len(content) != start + math.prod(shape):
            raise ValueError(f"{len(content)} bytes, not {start + math.prod(shape)} as for the shape {shape}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def download(folder: Path, mirror: str) -> None:
    """Fetch those of the four files that the folder lacks; each appears checked and whole or not at all.

    Several workers may do so at a time.
    """
    for name, checksum in FILES.items():
        if not find_idx(folder, name).exists():
            url, whole = f"{mirror}/{name}.gz", folder / f"{name}.{os.urandom(8).hex()}"
            print(f"Downloading {url}", flush=True)
            with reading(f"{url} (without a network, copy the files into {folder} yourself)"):
                content = urllib.request.urlopen(url, timeout=60).read()
                if hashlib.sha256(gzip.decompress(content)).hexdigest() != checksum:
                    raise ValueError("not the file of the MNIST database, its SHA-256 differs")
                folder.mkdir(parents=True, exist_ok=True)
                whole.write_bytes(content)
                whole.rename(folder / f"{name}.gz")


@contextlib.contextmanager
def reading(source: object) -> Iterator[None]:
    """Whatever goes wrong inside with what was read becomes an InputError that names the source."""
    try:
        yield
    except (OSError, ValueError, EOFError, zlib.error, HTTPException) as error:
        raise InputError(f"{source}: {error}") from None


def take_share(images: Any, labels: Any, worker: int, workers: int) -> tuple[Any, Any]:
    """The images and labels of one worker. All shares have one size and no image in common.

    They are drawn at random, because MNIST's order is not: its odd images are easier than its even ones.
    """
    size = len(labels) // workers
    if not size:
        raise InputError(f"{workers} workers are too many for {len(labels)} images")
    mine = np.random.default_rng(0).permutation(len(labels))[worker * size : (worker + 1) * size]
    return images[mine], labels[mine]


def batches(images: int, size: int, worker: int, first: int) -> Iterator[Any]:
    """Endless batches, each the numbers of so many of a worker's images, from the first-th on.

    Each pass has an order of its own, the same again after a restart; images that are left over at its end
    have their turn in another pass.
    """
    first_pass, first_batch = divmod(first, images // size)
    for number in itertools.count(first_pass):
        order = np.random.default_rng([number, worker]).permutation(images)
        for batch in range(first_batch, images // size):
            yield order[batch * size : (batch + 1) * size]
        first_batch = 0
