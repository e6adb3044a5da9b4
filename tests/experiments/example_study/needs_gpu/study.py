"""Is there a study that nothing takes part in here?"""

from __future__ import annotations

NAME = "needs_gpu"


def unsuited(contender: object, request: object) -> str:
    """Returns why no contender is part of this study."""
    return "it needs a GPU"
