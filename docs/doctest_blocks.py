"""Examples in docstrings become blocks of code on the API pages; Markdown would take `>>>` for a quote."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Puts fences around the examples of every docstring that is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe once for each module, class, function and attribute."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
