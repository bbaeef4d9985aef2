"""A wrong name for what weights are stored as sends people after the wrong file."""

from gguf import LlamaFileType

from stratadesk.models.file_type import quantization


def test_every_file_type_of_the_format_has_its_name() -> None:
    for kind in LlamaFileType:
        name = kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        if name != "GUESSED":
            assert quantization({"general.file_type": int(kind)}) in (name, ""), kind


def test_the_common_ones_are_known_and_others_are_not_made_up() -> None:
    common = {15: "Q4_K_M", 30: "IQ4_XS", 7: "Q8_0", 1: "F16", 38: "MXFP4_MOE"}
    assert {n: quantization({"general.file_type": n}) for n in common} == common
    assert quantization({}) == quantization({"general.file_type": "x"}) == ""
    assert quantization({"general.file_type": 9_999}) == ""
