import scheduling
from scheduling import following

RUNS = ["tests/runs/test_a.py", "tests/audit/test_b.py", "tests/system/mutations/test_c.py"]
WAITING = ["tests/accounting/test_d.py", *RUNS, "tests/voting/test_e.py", "tests/crowd/test_f.py"]


def test_a_process_stays_in_a_room_and_then_begins_the_dearest_that_nobody_has():
    assert following(WAITING, {"runs"}, set()) == RUNS[0]
    assert following(WAITING[2:], {"runs"}, {"tests/crowd"}) == RUNS[1]
    assert following(WAITING, set(), set()) == RUNS[0]
    assert following(WAITING, set(), {"runs"}) == "tests/crowd/test_f.py"
    assert following(WAITING[:-1], {"tests/crowd"}, {"runs"}) == "tests/voting/test_e.py"
    assert following(WAITING[:-2], {"tests/voting"}, {"runs"}) == "tests/accounting/test_d.py"


def test_the_largest_file_of_a_room_comes_first_also_where_another_process_is_helped(monkeypatch):
    monkeypatch.setattr(scheduling, "_size", {RUNS[0]: 5, RUNS[1]: 9, RUNS[2]: 7}.get)
    assert following(RUNS, {"tests/accounting"}, {"runs"}) == RUNS[1]
    assert following(RUNS, {"runs"}, set()) == RUNS[1]
    assert following(RUNS[::2], set(), set()) == RUNS[2]
