"""Which tests one process runs: those whose programs are alike, because every process traces its own."""

from xdist.scheduler import LoadFileScheduling

# The files of a room go to one process, and these rooms make and change the same small runs.
RUNS = {"tests/runs", "tests/audit", "tests/system/mutations"}
TRACED = ("aggregate", "baselines", "crowd", "ensemble", "models", "student")
# So do those of whole commands: a file of few, slow tests comes late, and the other process waits for it.
ROOMS = {f"tests/{room}" for room in (*TRACED, "system")}


class ByPrograms(LoadFileScheduling):
    """File by file, but whole rooms where programs of JAX are traced."""

    def _split_scope(self, nodeid: str) -> str:
        """The name of what goes to one process: of a room, or of a file."""
        file = super()._split_scope(nodeid)
        room = file.rpartition("/")[0]
        if room in RUNS:
            return "runs"
        return room if room in ROOMS else file


def scheduler(config, log):
    """For two processes; more of them would wait for the one that has all the runs."""
    two = config.getvalue("numprocesses") == 2 and config.getvalue("dist") == "loadfile"
    return ByPrograms(config, log) if two else None
