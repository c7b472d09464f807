"""The commands, run in the process of a test."""

from pate_jax import cli


def call(*arguments):
    """Run a command in this process; its exit code."""
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return ended.code or 0
    return 0
