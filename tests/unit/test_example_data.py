"""The images of example.py: reading and fetching them, and giving each worker its share."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import itertools
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import example  # noqa: E402
from sample_digits import mnist  # noqa: E402
from sample_digits.mnist import InputError  # noqa: E402

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array: np.ndarray) -> bytes:
    """The array as the content of an IDX file."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with ten digits to train with and ten for the test."""
    pixels = np.arange(10 * 28 * 28).reshape(10, 28, 28) % 256
    for name in mnist.FILES:
        (tmp_path / name).write_bytes(idx(pixels if "images" in name else np.arange(10)))
    return tmp_path


def test_the_sample_has_each_digit_equally_often() -> None:
    train_images, train_labels, test_images, test_labels = mnist.load(mnist.SAMPLE)
    assert train_images.shape == (5000, 784)
    assert test_images.shape == (1000, 784)
    assert np.bincount(train_labels).tolist() == [500] * 10
    assert np.bincount(test_labels).tolist() == [100] * 10
    assert abs(train_images.mean() / 255 - 0.1307) < 0.002  # as in the whole of MNIST


def test_idx_files(folder: Path) -> None:
    images, labels, _, _ = mnist.load(folder)
    assert images.shape == (10, 784)
    assert images[1, :3].tolist() == [784 % 256, 785 % 256, 786 % 256]
    assert labels.tolist() == list(range(10))


def test_gzipped_idx_files(folder: Path) -> None:
    plain = mnist.load(folder)
    for file in list(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert all(np.array_equal(a, b) for a, b in zip(plain, mnist.load(folder)))


TEN = np.zeros((10, 28, 28))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, idx(TEN)[:-1], rf"{IMAGES}: 7855 bytes, not 7856 as for the shape \[10, 28, 28\]"),
        (IMAGES, idx(TEN) + b"x", f"{IMAGES}: 7857 bytes, not 7856"),
        (IMAGES, idx(TEN)[:10], f"{IMAGES}: 10 bytes"),
        (IMAGES, b"", f"{IMAGES}: starts with 0x, not with 0x00000803"),
        (IMAGES, idx(np.arange(10)), f"{IMAGES}: starts with 0x00000801, not with 0x00000803"),
        (LABELS, idx(TEN), f"{LABELS}: starts with 0x00000803, not with 0x00000801"),
        (LABELS, idx(np.arange(9)), r"training data: images \(10, 28, 28\) and labels \(9,\)"),
        (LABELS, idx(np.arange(10) + 1), r"training data: .* labels \(10,\) up to 10 instead of"),
        (IMAGES, idx(np.zeros((10, 28, 27))), r"training data: images \(10, 28, 27\)"),
        (IMAGES, idx(np.zeros((0, 28, 28))), r"training data: images \(0, 28, 28\)"),
        (f"{IMAGES}.gz", gzip.compress(idx(TEN))[:-9], f"{IMAGES}.gz: Compressed file ended"),
        (f"{IMAGES}.gz", b"no gzip", f"{IMAGES}.gz: Not a gzipped file"),
        (f"{IMAGES}.gz", gzip.compress(idx(TEN))[:20] + b"x" * 50, f"{IMAGES}.gz: "),
    ],
)
def test_bad_files_are_named_with_their_fault(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        mnist.load(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / LABELS).unlink()
    with pytest.raises(InputError, match=f"No such file.*{LABELS}"):
        mnist.load(folder)


def test_bad_data_ends_the_program_before_tensorflow_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "import_tensorflow", lambda: pytest.fail("imported"))
    (folder / IMAGES).write_bytes(b"")
    assert example.main(["--data-dir", str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"example.py: error: {folder / IMAGES}: ")


def test_the_sample_is_used_only_where_no_folder_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(mnist.choose(None, None)[1]) == 5000
    assert "SAMPLE of 6000 digits, not the full MNIST" in capsys.readouterr().out
    with pytest.raises(InputError, match="elsewhere"):
        mnist.choose(Path("elsewhere"), None)


def test_mnist_data_is_used_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move(str(folder), folder.parent / "MNIST_data")
    monkeypatch.chdir(folder.parent)
    assert len(mnist.choose(None, None)[1]) == 10


@pytest.fixture
def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Address and folder of a server with the four files, which stand for those of MNIST."""
    served = folder / "served"
    served.mkdir()
    checksums = {}
    for name in mnist.FILES:
        content = (folder / name).read_bytes()
        checksums[name] = hashlib.sha256(content).hexdigest()
        (served / f"{name}.gz").write_bytes(gzip.compress(content))
        (folder / name).unlink()
    monkeypatch.setattr(mnist, "FILES", checksums)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(served))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            """Not into the output of the tests."""

    with http.server.ThreadingHTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://localhost:{server.server_port}", served
        server.shutdown()


def test_download(mirror: tuple[str, Path], tmp_path: Path) -> None:
    digits = mnist.choose(tmp_path / "new" / "folder", mirror[0])
    assert [len(array) for array in digits] == [10, 10, 10, 10]
    assert sorted(file.name for file in (tmp_path / "new" / "folder").iterdir()) == sorted(
        f"{name}.gz" for name in mnist.FILES
    )


def test_files_that_are_there_are_not_fetched_again(mirror: tuple[str, Path], tmp_path: Path) -> None:
    mnist.download(tmp_path / "new", mirror[0])
    shutil.rmtree(mirror[1])
    mnist.download(tmp_path / "new", mirror[0])


@pytest.mark.parametrize("content", [gzip.compress(b"another"), b"no gzip", gzip.compress(b"x" * 99)[:-9]])
def test_a_download_that_is_not_the_file_leaves_nothing(
    mirror: tuple[str, Path], tmp_path: Path, content: bytes
) -> None:
    (mirror[1] / f"{IMAGES}.gz").write_bytes(content)
    with pytest.raises(InputError, match=f"{mirror[0]}/{IMAGES}.gz"):
        mnist.download(tmp_path / "new", mirror[0])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("wrong", ["http://localhost:1", "http://name.invalid", "no address"])
def test_without_a_network_the_download_says_what_to_do(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InputError, match=f"{wrong}/{IMAGES}.gz .*copy the files into {tmp_path} yourself"):
        mnist.download(tmp_path, wrong)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_are_disjoint_and_equal(workers: int) -> None:
    everything = np.arange(100)
    shares = [mnist.take_share(everything, everything, worker, workers)[0] for worker in range(workers)]
    assert {len(share) for share in shares} == {100 // workers}
    assert len({image for share in shares for image in share}) == 100 // workers * workers


def test_more_workers_than_images_are_refused() -> None:
    with pytest.raises(InputError, match="11 workers are too many for 10 images"):
        mnist.take_share(np.arange(10), np.arange(10), 0, 11)


def drawn(worker: int, first: int, last: int) -> list[list[int]]:
    """Batches of three out of ten images."""
    stream = mnist.batches(10, 3, worker, first)
    return [chosen.tolist() for chosen in itertools.islice(stream, last - first)]


def test_an_epoch_takes_no_image_twice() -> None:
    assert len(set(sum(drawn(0, 0, 3), []))) == 9
    assert len(set(sum(drawn(0, 3, 6), []))) == 9


def test_epochs_and_workers_have_orders_of_their_own() -> None:
    assert drawn(0, 0, 3) != drawn(0, 3, 6) != drawn(1, 0, 3) != drawn(0, 0, 3)


def test_after_a_restart_the_order_is_the_same() -> None:
    assert drawn(1, 4, 9) == drawn(1, 0, 9)[4:]


def test_labels_stay_with_their_images() -> None:
    images, labels = mnist.take_share(np.arange(10), np.arange(10) * 2, 1, 3)
    assert labels.tolist() == (images * 2).tolist()
