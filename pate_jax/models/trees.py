"""Trees of arrays laid flat, as files hold them: each leaf by its path, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from pate_jax.errors import PateError

Tree = Any  # nested containers that JAX knows, with arrays as leaves


def flat(tree: Tree, separator: str = "/") -> dict[str, Any]:
    """The leaves of a tree by their paths.

    >>> flat({"hidden": {"bias": 3}, "logits": [4, 5]})
    {'hidden/bias': 3, 'logits/0': 4, 'logits/1': 5}
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator=separator): leaf for path, leaf in leaves}


def nested(leaves: Mapping[str, Any], separator: str = "/") -> dict[str, Any]:
    """The nested dicts that `flat` laid flat.

    >>> nested({"hidden/bias": 3, "scale": 4})
    {'hidden': {'bias': 3}, 'scale': 4}
    """
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *branches, last = path.split(separator)
        branch = tree
        for name in branches:
            branch = branch.setdefault(name, {})
            if not isinstance(branch, dict):
                raise PateError(f"{path!r} lies below another array; restore the file that holds both")
        branch[last] = leaf
    return tree
