"""The one error type that this package raises for input it cannot accept."""


class PateError(ValueError):
    """Input that cannot be accepted; the message names the value and the remedy.

    >>> raise PateError("delta=0 must be between 0 and 1")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: delta=0 must be between 0 and 1
    """
