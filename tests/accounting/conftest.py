"""Each test runs at the precision that its module asks for, whatever the modules before it did."""

import mpmath as mp
import pytest


@pytest.fixture(autouse=True)
def digits(request):
    with mp.workdps(getattr(request.module, "DIGITS", 50)):
        yield
