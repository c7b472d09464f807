"""Trees of arrays laid flat, as files hold them: each leaf by its path, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

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


def filled(like: Tree, leaves: Mapping[str, np.ndarray], separator: str = "/") -> Tree:
    """The containers of a tree, filled with arrays that `flat` laid flat, each with the type it has there.

    >>> filled((0.0, [0.0]), {"0": np.ones(2), "1/0": np.zeros(1)})
    (array([1., 1.]), [array([0.])])
    """
    wanted = flat(like, separator)
    if wanted.keys() != leaves.keys():
        path = sorted(wanted.keys() ^ leaves.keys())[0]
        raise PateError(
            f"the array {path!r} is in the file or in the net, and not in both: give another folder"
        )
    typed = [with_dtype(leaves[path], leaf) for path, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), typed)


def with_dtype(array: np.ndarray, like: Any) -> np.ndarray:
    """An array from a file, with its type again if NPZ does not know that type, such as bfloat16."""
    same_size = array.dtype.itemsize == np.result_type(like).itemsize
    return array.view(like.dtype) if array.dtype.kind == "V" and same_size else array
