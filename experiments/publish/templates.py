"""The one setting of jinja2 for README, docs and pages: every number goes through a filter of `numbers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.publish import numbers
from experiments.publish.wording import DIALECT_TITLES, join_words
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND, OTHERS

if TYPE_CHECKING:
    import jinja2


def make_templates(*folders: Path, is_html: bool = False) -> jinja2.Environment:
    """The templates in these folders; with `is_html`, what is put into them is escaped.

    A name that nothing gave is an error.
    """
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=is_html,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    forms = {name.removeprefix("format_"): form for name, form in vars(numbers).items() if name.startswith("format_")}
    made.filters |= forms | {"listed": join_words}
    made.globals |= {"percent_range": numbers.format_percent_range}
    made.globals |= {"dialects": DIALECTS, "others": OTHERS, "hand": BY_HAND, "dialect_titles": DIALECT_TITLES}
    return made
