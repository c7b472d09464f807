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


def test_at_the_end_it_takes_the_last_file_of_another_process():
    assert following(RUNS, {"tests/accounting"}, {"runs"}) == RUNS[-1]
