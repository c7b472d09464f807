"""Small tensorflow-datasets builders that need no TensorFlow: download, verify, prepare as array_record.

The checksums stand in checksums.tsv beside this file, where tensorflow-datasets looks for them. Archives are
read whole and never extracted: in a shared folder of extracted files, one data set could be made from another
one's files of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from pate_jax.archives.sources import SOURCES, Source, check_file

TRAIN, HELD_OUT = "train", "test"


class _Archive(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """What the builders share: the files of each split in, numbered records out."""

    VERSION = tfds.core.Version("1.0.0")
    SOURCE: ClassVar[Source]
    own_files: Mapping[str, Path] | None = None  # the user's files, where they are not the registered ones

    def _info(self) -> tfds.core.DatasetInfo:
        zlib, number = tfds.features.Encoding.ZLIB, tfds.features.Scalar(np.int64)
        inputs = tfds.features.Tensor(shape=self.SOURCE.shape, dtype=self.SOURCE.dtype, encoding=zlib)
        features = tfds.features.FeaturesDict({"inputs": inputs, "label": number, "number": number})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
        paths = self.own_files or self._fetch(dl_manager)
        splits = {TRAIN: self.SOURCE.train, HELD_OUT: self.SOURCE.held_out}
        return {
            split: self._generate_examples(split, [paths[name] for name in splits[split]]) for split in splits
        }

    def _fetch(self, dl_manager: Any) -> dict[str, Path]:
        archives, whole = self.SOURCE.archives, tfds.download.ExtractMethod.NO_EXTRACT
        wanted = {
            name: tfds.download.Resource(url=file.url, extract_method=whole)
            for name, file in archives.items()
        }
        paths = {name: Path(path) for name, path in dl_manager.download(wanted).items()}
        for name, path in paths.items():
            check_file(path, archives[name], "delete it and load again")
        return paths

    def _generate_examples(self, split: str, paths: list[Path]) -> Iterator:
        records = self.SOURCE.parse(split, [path.read_bytes() for path in paths])
        for inputs, label, number in zip(*records, strict=True):
            yield int(number), {"inputs": inputs, "label": int(label), "number": int(number)}


class PateMnist(_Archive):
    """MNIST's handwritten digits."""

    SOURCE = SOURCES["mnist"]


class PateFashionMnist(_Archive):
    """Fashion-MNIST's articles of clothing."""

    SOURCE = SOURCES["fashion_mnist"]


class PateSvhn(_Archive):
    """Street View House Numbers, cropped; train and test, never the 1.3 GB of extra."""

    SOURCE = SOURCES["svhn"]


class PateCifar10(_Archive):
    """CIFAR-10's small photographs."""

    SOURCE = SOURCES["cifar10"]


class PateAdult(_Archive):
    """UCI Adult: census rows and whether the income is above 50K."""

    SOURCE = SOURCES["adult"]


BUILDERS = {
    builder.SOURCE.name: builder
    for builder in (PateMnist, PateFashionMnist, PateSvhn, PateCifar10, PateAdult)
}
