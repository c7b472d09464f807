"""The Dockerfile and the manifest for Kubernetes: what they name is there, and Dask takes what they say."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "tpu_configs" / "kubernetes.yaml"
# What the operator's schema of a DaskCluster requires (dask-kubernetes 2026.3.0), and the names it gives.
REQUIRED = {"scheduler": {"spec", "service"}, "worker": {"spec"}}


def instructions():
    """Each instruction of the Dockerfile with its words."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_dockerfile_copies_what_is_there_from_a_fixed_base_and_ends_as_a_user():
    lines = instructions()
    assert {name for name, _ in lines} <= {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "CMD"}
    (base,) = [words for name, words in lines if name == "FROM"]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base)
    shown = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    copied = [word for name, words in lines if name == "COPY" for word in words.split()[:-1]]
    assert {word.removeprefix("./") for word in copied} == shown and all(
        (ROOT / one).exists() for one in shown
    )
    assert (ROOT / ".dockerignore").read_text().startswith("*\n")  # no run and no record gets into an image
    assert [words for name, words in lines if name == "USER"] == ["pate"] and lines[-1][0] == "CMD"
    assert ["ARG", "EXTRAS=cluster"] in lines


def test_the_extras_that_images_are_built_with_are_there():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in ("Dockerfile", "docs/start/cluster.md"):
        named = re.findall(r"EXTRAS=([\w,]+)", (ROOT / path).read_text())
        assert named and {one for each in named for one in each.split(",")} <= {*known}


@pytest.mark.long
def test_the_image_builds_and_has_the_command():
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], timeout=60).returncode:
        pytest.skip("no builder of images here")
    subprocess.run(["docker", "build", "-t", "pate:test", ROOT], check=True, timeout=1800)
    subprocess.run(["docker", "run", "--rm", "pate:test", "pate", "--version"], check=True, timeout=300)


@pytest.fixture
def manifest():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(MANIFEST.read_text())


def test_the_manifest_has_what_the_schema_of_the_operator_requires(manifest):
    assert manifest["apiVersion"] == "kubernetes.dask.org/v1" and manifest["kind"] == "DaskCluster"
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    assert {*spec} == {*REQUIRED} and all(REQUIRED[part] <= {*spec[part]} for part in spec)
    for part in spec:
        pod = spec[part]["spec"]
        assert [one["name"] for one in pod["containers"]] == [part]
        mounted = {one["name"] for one in pod["containers"][0]["volumeMounts"]}
        assert mounted == {one["name"] for one in pod["volumes"]}
    service = spec["scheduler"]["service"]
    assert service["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    ports = {one["name"]: one["containerPort"] for one in spec["scheduler"]["spec"]["containers"][0]["ports"]}
    assert {one["targetPort"]: one["port"] for one in service["ports"]} == ports
    assert f"tls://{name}-scheduler:{ports['tcp-comm']}" in MANIFEST.read_text()


def test_dask_takes_the_arguments_and_the_environment_of_the_manifest(manifest):
    pytest.importorskip("distributed")
    import dask.config
    from distributed.cli import dask_scheduler, dask_worker
    from distributed.security import Security

    commands = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    for part, command in commands.items():
        (container,) = manifest["spec"][part]["spec"]["containers"]
        assert container["args"][:2] == ["dask", part]
        context = command.make_context(part, container["args"][2:])
        assert context.params["dashboard"] is False
        told = {
            one["name"].removeprefix("DASK_").lower().replace("__", "."): one["value"]
            for one in container["env"]
        }
        assert all(dask.config.get(name.replace("_", "-"), "none") != "none" for name in told)
        with dask.config.set(told):
            security = Security()
        assert security.require_encryption
        for role in ("scheduler", "worker", "client"):
            assert security.get_tls_config_for_role(role)["cert"] == "/tls/certificate.pem"
            assert security.get_tls_config_for_role(role)["key"] == "/tls/key.pem"
