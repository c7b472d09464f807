"""XLA's flags for tests, which compile many programs and run each a few times: quick code, many devices."""

import importlib.util
import mmap
import os
import sys
import threading
from pathlib import Path

COUNT = "--xla_force_host_platform_device_count"
SAME = "--xla_gpu_deterministic_ops=true"  # which commands set: so tests and commands keep the same programs
QUICK = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_llvm_disable_expensive_passes": "true",
    "xla_cpu_parallel_codegen_split_count": "1",
}
PROGRAMS = 100  # that are lowered in one context of MLIR, which holds the constants of all


def flags(devices: int = 8) -> str:
    """Those that the installed XLA knows, since one that it does not know ends the process.

    A flag's name stands alone between zeros; that of one that is gone may still be a field's name.
    """
    (folder,) = importlib.util.find_spec("jaxlib").submodule_search_locations
    library = max(Path(folder).glob("*.so*"), key=lambda path: path.stat().st_size)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        named = {name: f"\0{name}\0".encode() for name in QUICK}
        known = [f"--{name}={QUICK[name]}" for name, held in named.items() if text.find(held) >= 0]
    return " ".join([f"{COUNT}={devices}", SAME, *known])


def environment(devices: int | None = None) -> dict[str, str]:
    """For a child with another number of devices, or with as many as it decides itself."""
    kept = [flag for flag in os.environ["XLA_FLAGS"].split() if not flag.startswith(f"{COUNT}=")]
    return {**os.environ, "XLA_FLAGS": " ".join([*kept, *([f"{COUNT}={devices}"] if devices else [])])}


def share_contexts() -> None:
    """Let the programs of a thread share contexts of MLIR: making one takes longer than lowering most."""
    if "jax" not in sys.modules:
        return
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None or hasattr(make, "kept"):  # another version of JAX, or done
        return

    def context():
        kept.programs = getattr(kept, "programs", PROGRAMS) + 1
        if kept.programs > PROGRAMS:
            kept.context, kept.programs = make(), 1
        return kept.context

    context.kept = kept = threading.local()
    mlir.make_ir_context = context
