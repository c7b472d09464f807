"""Which machines a run is meant for: `--topology cpu-8` and the files in topologies/.

A topology names the hardware (backend, devices in all, number of hosts) and nothing about the run.
It never changes a result. `prepare` has to run before JAX looks for devices, so nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pate_jax.errors import PateError, one_of
from pate_jax.system import devices, exits

_FOLDER = resources.files(__package__) / "topologies"


@dataclasses.dataclass(frozen=True)
class Topology:
    """The hardware of a run; `accelerator`, `zone` and `runtime` serve the launcher only."""

    name: str
    backend: str
    devices: int
    hosts: int = 1
    accelerator: str | None = None
    zone: str | None = None
    runtime: str | None = None

    def __post_init__(self) -> None:
        one_of(("cpu", "gpu", "tpu"), **{f"topology {self.name}: backend": self.backend})
        if self.hosts < 1 or self.devices < 1 or self.devices % self.hosts:
            raise PateError(
                f"topology {self.name}: devices={self.devices} must be a multiple of hosts={self.hosts}, and "
                "both at least 1"
            )

    @property
    def devices_per_host(self) -> int:
        """Devices of one host."""
        return self.devices // self.hosts


def read(name: str | Path) -> Topology:
    """The topology of this name, or in this .toml file.

    >>> read("cpu-8").devices_per_host
    8
    """
    is_file = Path(name).suffix == ".toml"
    if not is_file and str(name) not in names():
        known = ", ".join(names())
        raise PateError(f"topology={str(name)!r} is unknown ({known}); name one of these or a .toml file")
    file = Path(name) if is_file else _FOLDER / f"{name}.toml"
    try:
        fields = tomllib.loads(file.read_text())
        return Topology(name=Path(name).stem, **fields)
    except (OSError, ValueError, TypeError, RecursionError) as error:  # of TOML, of UTF-8, of its fields
        raise PateError(
            f'{file} is no topology ({error}); write for example backend = "cpu" and devices = 8'
        ) from error


def names() -> list[str]:
    """The topologies that come with the package.

    >>> "cpu-8" in names()
    True
    """
    return sorted(Path(file.name).stem for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def named(arguments: Sequence[str]) -> str | None:
    """What `--topology` names on a command line, if it is there.

    >>> named(["run", "--topology", "v5e-8"]), named(["run", "--topology=cpu-8"]), named(["run"])
    ('v5e-8', 'cpu-8', None)
    """
    for place, argument in enumerate(arguments):
        if argument.startswith("--topology="):
            return argument.partition("=")[2]
        if argument == "--topology" and place + 1 < len(arguments):
            return arguments[place + 1]
    return None


def prepare(arguments: Sequence[str]) -> None:
    """Make the devices that `--topology` on a command line asks for; call it before JAX starts."""
    wanted = named(arguments)
    if wanted is None:
        return
    topology = read(wanted)
    if topology.backend == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        devices.prepare(topology.devices_per_host)


def enter(
    name: str | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Join the other processes of a run, if there are any, and check that all devices are there.

    On Slurm and TPU pods JAX finds the others; elsewhere `coordinator` is the first process's address.
    """
    topology = None if name is None else read(name)
    if topology is not None and processes is not None:
        topology = dataclasses.replace(
            topology, hosts=processes, devices=topology.devices_per_host * processes
        )
    wanted = processes or (topology.hosts if topology else 1)
    if (coordinator is None) != (process is None) or (process is not None and not 0 <= process < wanted):
        raise PateError(
            f"coordinator={coordinator} and process={process} go together, with a process from 0 to "
            f"{wanted - 1} of --processes={wanted}; on Slurm and TPU pods leave both out"
        )
    if wanted > 1:
        exits.results_alone_on_stdout()
        devices.join(*(() if coordinator is None else (coordinator, wanted, process)))
    if topology is not None:
        _check(topology)


def _check(topology: Topology) -> None:
    import jax

    seen, backend = jax.device_count(), jax.default_backend()
    if backend != topology.backend or seen != topology.devices:
        raise PateError(
            f"topology={topology.name} wants {topology.devices} {topology.backend} devices in all, and JAX "
            f"sees {seen} of {backend}; unset XLA_FLAGS and JAX_PLATFORMS, or leave --topology out"
        )
