"""A quick check whether a host answers, because tensorflow-datasets would retry for minutes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit
from urllib.request import getproxies

from pate_jax.errors import PateError

SECONDS = 1.3  # for all hosts together, so that with the imports the check takes less than three seconds
_PORTS = {"http": 80, "https": 443}


def check_reachable(name: str, urls: Iterable[str]) -> None:
    """Refuse within three seconds if the hosts of these addresses cannot be reached."""
    hosts = sorted({_host(url) for url in urls})
    answers = dict.fromkeys(hosts, "it did not answer in time")
    threads = [threading.Thread(target=_try, args=(host, answers), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS / len(threads))
    for (host, port), answer in list(answers.items()):
        if answer:
            raise PateError(
                f"{name} must be downloaded, but {host}:{port} cannot be reached ({answer}); put its "
                "archives in a folder and pass that as --manual-dir, or use strokes, which needs no download"
            )


def _host(url: str) -> tuple[str, int]:
    """The host to connect to: the proxy, if one is set for this kind of address."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if proxy and not _bypassed(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}", scheme="http")
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def _bypassed(host: str) -> bool:
    listed = [
        entry.strip().lstrip(".") for entry in os.environ.get("no_proxy", "").split(",") if entry.strip()
    ]
    return any(entry == "*" or host == entry or host.endswith(f".{entry}") for entry in listed)


def _try(host: tuple[str, int], answers: dict[tuple[str, int], str]) -> None:
    try:
        socket.create_connection(host, timeout=SECONDS).close()
        answers[host] = ""
    except OSError as error:
        answers[host] = error.strerror or str(error)
