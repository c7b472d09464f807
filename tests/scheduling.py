"""Which tests one process runs next: those whose programs are alike, because every process traces its own."""

from pathlib import PurePosixPath

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
    staying = [file for file in files if room(file) in mine]
    free = [file for file in files if room(file) not in others]
    if staying:
        return staying[0]
    return min(free, key=lambda file: _turn(room(file))) if free else files[-1]


def room(file):
    """The folder of a file, or the name of several that share their runs."""
    folder = str(PurePosixPath(file).parent)
    return "runs" if folder in RUNS else folder


def _turn(name):
    order = (*FIRST, None, *LAST)  # None stands for all others
    return order.index(name if name in order else None)


def scheduler(config, log):
    """For the default way to divide the tests; `--dist` chooses another."""
    return ByRooms(config, log) if config.getvalue("dist") == "loadfile" else None
