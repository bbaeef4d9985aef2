"""What `general.file_type` of a header means: how most of the weights are stored."""

from collections.abc import Mapping

_NAMES = {
    **dict(enumerate(("F32", "F16", "Q4_0", "Q4_1"))),
    **dict(enumerate(("Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"), 7)),
    **dict(enumerate(("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"), 14)),
    **dict(enumerate(("IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S"), 19)),
    **dict(
        enumerate(("IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16"), 25)
    ),
    **dict(enumerate(("TQ1_0", "TQ2_0", "MXFP4_MOE"), 36)),
}
"""The numbers of the GGUF format's file types; the others were given up."""


def quantization(metadata: Mapping[str, object]) -> str:
    """Return the name of a header's file type, empty where it has none that is known."""
    number = metadata.get("general.file_type")
    return _NAMES.get(number, "") if isinstance(number, int) else ""
