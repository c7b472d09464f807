"""Small tensorflow-datasets builders that need no TensorFlow: download, verify, prepare as array_record.

The checksums are in checksums.tsv next to this file, where tensorflow-datasets looks for them. Archives are
read whole and never extracted: in a shared folder of extracted files, one data set could be made from files
of the same name of another. An example is a block of records, because decoding single records takes much
longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from pate_jax.data.archives.sources import SOURCES, VERSION, Source, check_file

TRAIN, HELD_OUT = "train", "test"
BLOCK = 250  # records in one example


class _Archive(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """The common part of the builders, from the files of each split to numbered records."""

    VERSION = tfds.core.Version(VERSION)
    SOURCE: ClassVar[Source]
    own_files: Mapping[str, Path] | None = None  # the user's files, if they are not the registered ones

    def _info(self) -> tfds.core.DatasetInfo:
        zlib, shape = tfds.features.Encoding.ZLIB, (None, *self.SOURCE.shape)
        inputs = tfds.features.Tensor(shape=shape, dtype=self.SOURCE.dtype, encoding=zlib)
        numbers = tfds.features.Tensor(shape=(None,), dtype=np.int64)
        features = tfds.features.FeaturesDict({"inputs": inputs, "labels": numbers, "numbers": numbers})
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
        for start in range(0, len(records.labels), BLOCK):
            inputs, labels, numbers = (column[start : start + BLOCK] for column in records)
            yield (
                start,
                {"inputs": inputs, "labels": labels.astype(np.int64), "numbers": numbers.astype(np.int64)},
            )


class PateMnist(_Archive):
    """MNIST's handwritten digits."""

    SOURCE = SOURCES["mnist"]


class PateFashionMnist(_Archive):
    """Fashion-MNIST's articles of clothing."""

    SOURCE = SOURCES["fashion_mnist"]


class PateSvhn(_Archive):
    """Street View House Numbers, cropped: the train and test parts, without the 1.3 GB of the extra part."""

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
