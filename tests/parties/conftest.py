import pytest
import small_votes


@pytest.fixture(scope="module")
def forks():
    """The program that makes processes of parties: it imports once for all tests of a file."""
    program = small_votes.Forks()
    yield program
    program.close()
