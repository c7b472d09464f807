"""Which tests one process runs next: those whose programs are alike, because every process traces its own.

Of a room the longest files come first, as far as their sizes tell, so that all processes end together.
"""

from pathlib import Path, PurePosixPath

from xdist.scheduler import LoadFileScheduling

# These rooms make and change the same small runs.
RUNS = {"tests/runs", "tests/audit", "tests/system/mutations"}
# The order in which rooms are begun; those of many short files come last, so that all processes end together.
FIRST = ("runs", "tests/sweep", "tests/system", "tests/student", "tests/ensemble", "tests/crowd")
LAST = ("tests/data", "tests/accounting")


class ByRooms(LoadFileScheduling):
    """File by file: a process stays in a room, then begins one that nobody has, and helps the others last."""

    def _assign_work_unit(self, node):
        files = [*self.workqueue]
        held = {each: [*work][-1:] for each, work in self.assigned_work.items()}
        mine = {room(file) for file in held.pop(node, [])}
        others = {room(file) for last in held.values() for file in last}
        self.workqueue.move_to_end(following(files, mine, others), last=False)
        super()._assign_work_unit(node)


def following(files, mine, others):
    """The next of the files that wait, for a process whose last room is in `mine`, beside those of others."""
    free = [file for file in files if room(file) not in others]
    staying = [file for file in files if room(file) in mine]
    begun = staying or sorted(free, key=lambda file: _turn(room(file)))[:1]
    alike = [file for file in files if begun and room(file) == room(begun[0])]
    return max(alike or files, key=_size)


def room(file):
    """The folder of a file, or the name of several that share their runs."""
    folder = str(PurePosixPath(file).parent)
    return "runs" if folder in RUNS else folder


def _size(file):
    path = Path(__file__).parents[1] / file
    return path.stat().st_size if path.exists() else 0


def _turn(name):
    order = (*FIRST, None, *LAST)  # None stands for all others
    return order.index(name if name in order else None)


def scheduler(config, log):
    """For the default way to divide the tests; `--dist` chooses another."""
    return ByRooms(config, log) if config.getvalue("dist") == "loadfile" else None
