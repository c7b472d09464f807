"""Real processes for the tests of a vote: a program that imports once and forks one process for each party.

Each line of standard input is a list of jobs in JSON, which are done at the same time: the folder, and for
each party the faults it shall have. Each line of the answer says how the processes ended. Faults are put
in here, never in the package.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from pate_jax.errors import PateError
from pate_jax.parties import agreement as agreements
from pate_jax.parties import connections, engine, ranges, session


def serve(part, before=None):
    """Carry out jobs; `part` is what a party does in its process, and `before` what serves its folder."""
    engine.library()
    connections._exchanger()
    for line in sys.stdin:
        jobs = [(Path(job["folder"]), job["parties"].items()) for job in json.loads(line)]
        for folder, _ in jobs:
            if before is not None:
                before(folder)
        children = [
            {name: fork(part, folder, name, faults) for name, faults in parties} for folder, parties in jobs
        ]
        ended = [
            {name: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for name, pid in of_job.items()}
            for of_job in children
        ]
        print(json.dumps(ended), flush=True)


def fork(part, folder, name, faults):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    signal.alarm(faults.get("limit", 60))  # no test waits for ever
    try:
        code = part(folder, name, faults)
    except BaseException as error:
        (folder / f"{name}.txt").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def vote(folder, who, faults):
    """One party's vote, with its faults; 0 if it ended well, 3 if it was refused."""
    time.sleep(faults.get("late", 0))
    name = faults.get("name", who)
    held = agreements.read(folder / faults.get("agreement", "agreement.toml"))
    key = (folder / faults.get("key", f"{name}.pem")).read_text()
    with np.load(folder / f"{name}.npz") as file:
        own = [file[entry] for entry in file.files]
    break_it(faults)
    started = time.monotonic()
    try:
        with session.open(
            held, name, key, present=tuple(faults["present"]) if "present" in faults else None
        ) as vote:
            time.sleep(faults.get("pause", 0))
            opened = vote.sum(*own) if held.opened == "counts" else vote.answers(*own)
            said = vote.exchange(name.encode())
            np.savez(folder / f"{who}.opened.npz", opened=opened, sent=vote.bytes_sent, sealed=Sends.number)
            assert said == {one: one.encode() for one in vote.present}, said
    except PateError as error:
        (folder / f"{who}.txt").write_text(str(error))
        (folder / f"{who}.seconds").write_text(str(time.monotonic() - started))
        return 3
    return 0


class Sends:
    """How many messages this process has sent."""

    number = 0


def break_it(faults):
    """Put a party's faults in: it dies, falls silent or is busy at a message, or sends what it should not."""
    kind = connections._exchanger()
    send, digits, combination = kind.send, ranges.digits, ranges.combination
    sent = []

    def counted(self, label, payload):
        Sends.number += 1
        if Sends.number == faults.get("die"):
            os.kill(os.getpid(), signal.Signals[faults.get("signal", "SIGKILL")])
        if Sends.number == faults.get("stop"):
            time.sleep(4)  # it hears nothing either, or its own patience might end first
        if Sends.number == faults.get("busy"):
            time.sleep(0.3)
        if Sends.number >= faults.get("stop", 10**9):
            return
        send(self, label, payload)

    def cheating(*arguments):
        found = digits(*arguments).astype(np.int64)
        for place, value in faults.get("digits", []):
            found[place] = value
        sent.append(found)
        return found[: len(found) - faults.get("short", 0)]

    def lying(field, agreement, party, shares, seed):
        found = combination(field, agreement, party, shares, seed)
        if party.name != faults.get("lies"):
            return found
        return (found - combination(field, agreement, party, field.of(sent[0]), seed)) % field.modulus

    kind.send, ranges.digits, ranges.combination = counted, cheating, lying


if __name__ == "__main__":
    serve(vote)
