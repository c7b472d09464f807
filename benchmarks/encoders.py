"""How many texts and photos the frozen encoders read: `python -m benchmarks.encoders --folder /tmp/photos`.

Made-up notes of 20 words, and JPEG files of smooth noise, which are written into the folder first and then
decoded, resized and encoded as `pate run` does. Beside the clock stands the CPU time, which other programs
change less: it says what the cores would do alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import measurement
from pate_jax.data import encoders, folders
from pate_jax.errors import PateError

WORDS = ["the", "a", "pain", "patient", "was", "not", "very", "good", "after", "days", "and", "we", "bought"]


def measured(name: str, count: int, work: Callable[[], Any], busy: float) -> None:
    """Do the work once, and print what it took as a line of JSON."""
    cores = len(os.sched_getaffinity(0))
    clock, used = time.perf_counter(), time.process_time()
    work()
    clock, used = time.perf_counter() - clock, time.process_time() - used
    line = {"encoder": name, "records": count, "cores": cores, "load": busy}
    line |= {"a_second": round(count / clock), "a_second_by_cpu_time": round(count * cores / used)}
    print(json.dumps(line), flush=True)


def photos(folder: Path, count: int, side: int) -> Path:
    """A folder of JPEG files of this size."""
    home, random = folder / f"{side}", np.random.default_rng(0)
    if not home.is_dir():
        home.mkdir(parents=True)
        for number in range(count):
            coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3)).astype(np.uint8))
            coarse.resize((side, side), Image.Resampling.BICUBIC).save(home / f"{number}.jpg", quality=90)
    return home


def main() -> None:
    """Measure all encoders that are installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    busy, random = measurement.load(chosen.busy), np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 20)) for _ in range(chosen.count)]
    for name, some in (("words", texts), ("minilm", texts[: chosen.count // 10])):
        try:
            read = encoders.named(name)
        except PateError as error:
            print(error)
            continue
        measured(name, len(some), lambda read=read, some=some: read(some), busy)
    for side in (112, 256):
        home, seen = photos(chosen.folder, chosen.count, side), encoders.photos("lite0", 112)
        measured(
            f"lite0, files of {side} px",
            chosen.count,
            lambda home=home, seen=seen: folders.encoded(home, seen),
            busy,
        )


if __name__ == "__main__":
    main()
