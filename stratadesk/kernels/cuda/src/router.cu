// The router: scores, the best experts, their weights. One block a token, one thread an expert.
#include "bits.cuh"

constexpr int SOFTMAX = 0, SIGMOID = 1, SELECTED = 2;
constexpr int MOST_EXPERTS = 1024, MOST_USED = 32;

// A thread counts the experts that are better than its own, which is its place among the best: of
// equal ones those of lower index are better, and a NaN is as good as the lowest.
extern "C" __global__ void __launch_bounds__(MOST_EXPERTS)
    route(const float *logits, const float *bias, i32 *chosen, float *weights, int experts,
          int used, int score, int renormalise, float scale) {
    __shared__ float ranked[MOST_EXPERTS], kept[MOST_USED], scratch[WARP];
    const int expert = threadIdx.x;
    const bool real = expert < experts;
    const float lowest = __int_as_float(0xff800000);
    logits += u64(blockIdx.x) * experts;
    chosen += u64(blockIdx.x) * used, weights += u64(blockIdx.x) * used;

    const float logit = real ? logits[expert] : lowest;
    const float largest = block_max(logit, scratch);
    float value = logit;
    if (score == SOFTMAX) {
        value = real ? expf(logit - largest) : 0.0f;
        value /= block_sum(value, scratch);
    }
    if (score == SIGMOID) value = sigmoid(logit);
    float rank_by = bias && real ? value + bias[expert] : value;
    if (!real || !(rank_by >= lowest)) rank_by = lowest;
    ranked[expert] = rank_by;
    __syncthreads();

    int better = 0;
    for (int other = 0; other < experts; ++other)
        better += ranked[other] > rank_by || (ranked[other] == rank_by && other < expert);
    if (real && better < used) chosen[better] = expert, kept[better] = value;
    __syncthreads();
    if (expert) return;

    float sum = 0.0f;
    if (score == SELECTED) {
        for (int k = 0; k < used; ++k) sum += kept[k] = expf(kept[k] - largest);
    } else if (renormalise) {
        for (int k = 0; k < used; ++k) sum += kept[k];
    }
    // As llama.cpp: the sum of renormalised weights counts as 2^-14 at least.
    if (score != SELECTED) sum = fmaxf(sum, 6.103515625e-5f);
    const bool divided = score == SELECTED || renormalise;
    for (int k = 0; k < used; ++k) weights[k] = (divided ? kept[k] / sum : kept[k]) * scale;
}
