"""What routers are told by the header: how many experts, how scores become weights."""

from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

GATING_FUNCTIONS = {1: RouterScore.SOFTMAX, 2: RouterScore.SIGMOID}
"""Values of `expert_gating_func`."""


def expert_counts(header: Hyperparameters) -> tuple[int, int]:
    """The number of experts and how many of them a token uses.

    Raises:
        GgufError: more are used than there are.
        UnsupportedModelError: experts in groups, of which a token may use only some.
    """
    count, used = header.positive("expert_count"), header.positive("expert_used_count")
    if used > count:
        raise GgufError(f"{header.key('expert_used_count')} is {used} of {count} experts.")
    groups = header.natural("expert_group_count", default=0)
    if groups > 1:
        raise UnsupportedModelError(
            f"{header.key('expert_group_count')} is {groups}: routing by groups of experts is not "
            "computed by this version."
        )
    return count, used


def softmax_router(header: Hyperparameters, *, renormalise: bool) -> RouterSpec:
    """Softmax over all experts; the weights of the chosen ones divided by their sum, or not."""
    return RouterSpec(expert_counts(header)[1], RouterScore.SOFTMAX, renormalise)


def gated_router(
    header: Hyperparameters, table: TensorTable, prefix: str, usual: RouterScore
) -> RouterSpec:
    """Score, normalising and scale as the header says, `exp_probs_b.bias` counts for the choice.

    `usual` is the score where `expert_gating_func` is absent. An `expert_weights_scale` of 0
    means no scaling.
    """
    count, used = expert_counts(header)
    return RouterSpec(
        used,
        _score(header, usual),
        renormalise=header.boolean("expert_weights_norm", default=False),
        scale=header.real("expert_weights_scale", default=1.0) or 1.0,
        selection_bias=table.optional_vector(f"{prefix}exp_probs_b.bias", count),
    )


def _score(header: Hyperparameters, usual: RouterScore) -> RouterScore:
    number = header.natural("expert_gating_func", default=0)
    if number == 0:
        return usual
    if number not in GATING_FUNCTIONS:
        raise UnsupportedModelError(
            f"{header.key('expert_gating_func')} is {number}; this version computes 1 (softmax) "
            "and 2 (sigmoid)."
        )
    return GATING_FUNCTIONS[number]
