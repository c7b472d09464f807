"""The error that this package raises for input it cannot accept, and its warning."""


class PateError(ValueError):
    """Input that cannot be accepted; the message names the value and the remedy.

    >>> raise PateError("delta=0 must be between 0 and 1")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: delta=0 must be between 0 and 1
    """


class SharedInputs(PateError):
    """Inputs of a public part are private ones too, and nobody declared that they may be.

    >>> raise SharedInputs("pool.npz: 3 of 10 inputs are private ones too: remove them")
    Traceback (most recent call last):
    ...
    pate_jax.errors.SharedInputs: pool.npz: 3 of 10 inputs are private ones too: remove them
    """


class PateWarning(UserWarning):
    """Less is promised than it seems, or more is spent; the message names the remedy.

    >>> import warnings
    >>> with warnings.catch_warnings(action="error", category=PateWarning):
    ...     warnings.warn("random_state=0 makes this fit NOT private", PateWarning)
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateWarning: random_state=0 makes this fit NOT private
    """
