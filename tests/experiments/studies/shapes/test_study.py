"""`shapes`: which problems are timed."""

from __future__ import annotations

from experiments.records import workloads
from experiments.records.request import DEFAULT, FULL


def test_named_shapes_have_a_source_and_sizes_of_their_own_and_some_are_timed_by_default():
    named = workloads.named_shapes()
    groups = {shape.sizes: shape.group for shape in named}
    assert len(named) >= 40 and len(groups) == len(named)
    assert all(20 < len(shape.why) <= 100 and len(shape.source) > 20 and min(shape.sizes) > 0 for shape in named)
    assert {(1, 4096), (8, 4096), (16, 4096)} <= {shape.sizes[::2] for shape in named if shape.group == "decode"}
    assert all(any(side % 4 for side in shape.sizes) for shape in named if shape.group == "odd")
    few, everyone = workloads.shapes(DEFAULT, "bf16"), workloads.shapes(FULL, "bf16")
    assert {groups[sizes] for sizes in few} == set(groups.values()) and everyone == list(groups)
    assert set(workloads.shapes(FULL, "fp32")) == {*groups, *workloads.map_sizes(FULL)}
