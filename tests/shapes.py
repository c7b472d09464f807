"""The shapes in signatures, checked while tests run: beartype on those annotations alone.

All others are mypy's matter: a wrong type at the border has to end in a PateError, which tests look for.
"""

from beartype import beartype


def check(function):
    """What jaxtyping's import hook calls with a function that has the signature of one of ours."""
    hints = {name: hint for name, hint in function.__annotations__.items() if "jaxtyping." in repr(hint)}
    function.__annotations__ = hints
    return beartype(function) if hints else function
