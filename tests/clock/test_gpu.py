"""The constants of GPUs: each with its source, under the names that a user gives."""

from __future__ import annotations

import dataclasses

import pytest

from gemm_ref.clock import gpu


def test_each_constant_of_each_card_has_a_source_and_a_date():
    for card in gpu.cards():
        known = gpu.read(card)
        fields = {field.name for field in dataclasses.fields(gpu.Gpu)} - {"name", "sources"}
        assert set(known.sources) == fields
        assert all(source.split(", ")[-1][:4].isdigit() for source in known.sources.values())


def test_cards_of_one_chip_share_what_is_of_a_multiprocessor_and_say_so():
    h200, h100 = gpu.read("h200"), gpu.read("nvidia-h100-80gb-hbm3")
    assert h200.latency == h100.latency and "h100" in h200.sources["latency"]
    assert h200.roof["dram_read"] > 1.3 * h100.roof["dram_read"] and "h200" in h200.sources["roof"]


def test_published_clocks_are_those_of_the_chips_documents():
    """Lanes of a scheduler and bytes of a clock, from the programming guide's table and the whitepaper."""
    h100 = gpu.read("h100")
    for opcode, clocks in {"FFMA": 1, "IADD3": 2, "IMAD": 2, "MUFU": 8, "SHFL": 4, "F2I": 8}.items():
        assert h100.interval[opcode] == pytest.approx(clocks, rel=0.03), opcode
    for request, clocks in {"LDS.32": 1, "LDS.128": 4, "LDSM.4": 4, "LDG.128": 4, "LDS.32 2 per bank": 2}.items():
        assert h100.request[request] == pytest.approx(clocks, rel=0.03), request
    assert h100.wgmma["bf16 n256 shared"] == pytest.approx(128, rel=0.01)
    l2 = h100.bandwidth["LDG.128"] * h100.multiprocessors * h100.max_sm_clock_mhz / 1e6
    assert l2 == pytest.approx(h100.roof["l2_read"], rel=0.05)
