"""CIFAR-100 on tiny files: TensorFlow Federated's layout, the official binary version, and
mosaics.
"""

import numpy as np
import pytest
from PIL import Image

from fedasym.core.errors import InvalidInput
from fedasym.data import images

from .layouts import RNG, counts, write


def picture(n):
    return RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def test_clients_of_both_files_are_kept_apart(tmp_path):
    train = {
        str(name): {"image": picture(10), "label": np.arange(10), "coarse_label": np.arange(10)}
        for name in range(3)
    }
    test = {"0": {"image": picture(10), "label": np.arange(90, 100), "coarse_label": np.arange(10)}}
    write(tmp_path / "fed_cifar100_train.h5", train)
    write(tmp_path / "fed_cifar100_test.h5", test)
    federation = images.load_cifar100(tmp_path)
    assert federation.clients == ("train_0", "train_1", "train_2", "test_0")
    assert counts(federation) == [[8] * 4, [1] * 4, [1] * 4]
    assert np.array_equal(federation.client("test_0").features, test["0"]["image"].reshape(10, -1))
    assert np.array_equal(
        federation.client("train_0").features, train["0"]["image"].reshape(10, -1)
    )
    assert federation.client("test_0").labels.tolist() == list(range(90, 100))
    assert federation.outputs == 100


def records(fine, pictures):
    """The official binary version: coarse label, fine label, and the planes of red, green and
    blue.
    """
    planes = pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)
    return np.column_stack([fine // 5, fine, planes]).astype(np.uint8)


def test_the_official_binary_version(tmp_path):
    fine, pictures = np.arange(1200) % 100, picture(1200)
    records(fine[:1000], pictures[:1000]).tofile(tmp_path / "train.bin")
    records(fine[1000:], pictures[1000:]).tofile(tmp_path / "test.bin")
    federation = images.load_cifar100(tmp_path)
    assert len(federation) == 600
    assert len(federation.labels) == 1200
    owners = {
        image.tobytes(): label
        for image, label in zip(pictures.reshape(1200, -1), fine, strict=True)
    }
    found = {
        row.astype(np.uint8).tobytes(): label
        for row, label in zip(federation.features, federation.labels, strict=True)
    }
    assert owners == found  # every image once, in rows, columns and colours, beside its label
    again, dealt, split = (
        images.load_cifar100(tmp_path),
        images.load_cifar100(tmp_path, allocation=1),
        images.load_cifar100(tmp_path, seed=1),
    )
    assert np.array_equal(again.features, federation.features)
    assert not np.array_equal(dealt.features, federation.features)
    assert np.array_equal(split.features, federation.features)
    assert not np.array_equal(split.split, federation.split)


def test_broken_binary_files(tmp_path):
    good = records(np.arange(100), picture(100))
    good.tofile(tmp_path / "test.bin")
    (tmp_path / "train.bin").write_bytes(good.tobytes()[:-1])
    with pytest.raises(
        InvalidInput, match=r"train.bin has 307399 bytes, not a multiple of 3074: it is cut short"
    ):
        images.load_cifar100(tmp_path)
    odd = good.copy()
    odd[7, 1] = 100
    odd.tofile(tmp_path / "train.bin")
    with pytest.raises(InvalidInput, match=r"train.bin: image 7 has fine label 100, above 99"):
        images.load_cifar100(tmp_path)
    odd[7, :2] = 3, 7
    odd.tofile(tmp_path / "train.bin")
    with pytest.raises(
        InvalidInput, match=r"image 7, of fine class 7, has coarse class 3 and others have 1"
    ):
        images.load_cifar100(tmp_path)
    with pytest.raises(
        InvalidInput,
        match=r"has neither fed_cifar100_train.h5 .* nor train.bin .* nor class_00.webp",
    ):
        images.load_cifar100(tmp_path / "nowhere")


def test_mosaics_of_another_shape_and_of_other_images(tmp_path):
    grid = picture(600).reshape(24, 25, 32, 32, 3)
    Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in grid])).save(
        tmp_path / "class_00.png"
    )
    assert np.array_equal(images.read_mosaic(tmp_path / "class_00.png"), grid.reshape(600, -1))
    Image.fromarray(grid[0, 0]).save(tmp_path / "class_01.png")
    with pytest.raises(
        InvalidInput,
        match=r"class_01.png has shape \(32, 32, 3\) where \(768, 800, 3\) is expected",
    ):
        images.read_mosaic(tmp_path / "class_01.png")
    (tmp_path / "class_00.webp").write_bytes(b"no image")
    with pytest.raises(InvalidInput, match=r"has no file coarse_of_fine.csv"):
        images.load_cifar100(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text(
        "fine,coarse\n" + "".join(f"{fine},{fine // 5}\n" for fine in range(100))
    )
    with pytest.raises(InvalidInput, match=r"class_00.webp cannot be read as an image"):
        images.load_cifar100(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text("fine,coarse\n0,1\n")
    with pytest.raises(InvalidInput, match=r"give each fine class from 0 to 99 once"):
        images.load_cifar100(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text("a,b\n0,1\n")
    with pytest.raises(InvalidInput, match=r"columns 'fine' and 'coarse' of whole numbers"):
        images.load_cifar100(tmp_path)


def test_mosaics_that_hold_other_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "read_mosaic", lambda path: np.zeros((600, 3072), np.uint8))
    for fine in range(100):
        (tmp_path / f"class_{fine:02}.webp").touch()
    with pytest.raises(
        InvalidInput, match=r"the mosaics do not hold CIFAR-100's images \(their SHA-256 is"
    ):
        list(images.mosaic_images(tmp_path))
