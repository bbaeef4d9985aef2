// The router: scores, the best experts, their weights. One block a token, one thread an expert.
#include "bits.cuh"

constexpr int SOFTMAX = 0, SIGMOID = 1, SELECTED = 2;
constexpr int MOST_EXPERTS = 1024, MOST_USED = 32;

// A whole number that is ordered as `value` is, all NaNs as the lowest; both zeros are the same.
DEVICE int ordered(float value) {
    const float lowest = __int_as_float(0xff800000);
    const int bits = __float_as_int(value >= lowest ? value + 0.0f : lowest);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

// How many of `four` are better than `own`: greater, or the same where `before` says that those are.
DEVICE int better_of(const int4 &four, int own, bool before) {
    const int least = own - before;
    return (four.x > least) + (four.y > least) + (four.z > least) + (four.w > least);
}

// A thread counts the experts that are better than its own, which is its place among the best: first
// in its warp, then, if it is still among the best, in the others, of which only the best are looked
// at. Of equal ones those of lower index are better, and a NaN is as good as the lowest.
extern "C" __global__ void __launch_bounds__(MOST_EXPERTS)
    route(const float *logits, const float *bias, i32 *chosen, float *weights, int experts,
          int used, int score, int renormalise, float scale) {
    take_turn();
    constexpr int NO_EXPERT = -0x7fffffff;
    __shared__ int4 in_warp[MOST_EXPERTS / 4], best[MOST_EXPERTS / 4];
    __shared__ float kept[MOST_USED], scratch[WARP];
    const int expert = threadIdx.x, lane = expert % WARP, warp = expert / WARP;
    const bool real = expert < experts;
    const float lowest = __int_as_float(0xff800000);
    logits += u64(blockIdx.x) * experts;
    chosen += u64(blockIdx.x) * used, weights += u64(blockIdx.x) * used;

    const float logit = real ? logits[expert] : lowest, moved = bias && real ? bias[expert] : 0.0f;
    const float largest = block_max(logit, scratch);
    float value = logit;
    if (score == SOFTMAX) {
        value = real ? expf(logit - largest) : 0.0f;
        value /= block_sum(value, scratch);
    }
    if (score == SIGMOID) value = sigmoid(logit);
    const int own = real ? ordered(bias ? value + moved : value) : NO_EXPERT;
    reinterpret_cast<int *>(in_warp)[expert] = own;
    __syncwarp();

    int better = 0;
#pragma unroll
    for (int k = 0; k < WARP / 4; ++k)
        if (k != lane / 4) better += better_of(in_warp[warp * (WARP / 4) + k], own, k < lane / 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const int other = lane / 4 * 4 + k;
        const int key = reinterpret_cast<const int *>(in_warp)[warp * WARP + other];
        better += key > own || (key == own && other < lane);
    }
    reinterpret_cast<int *>(best)[warp * WARP + better] = own;
    __syncthreads();
    if (better < used) {
        const int warps = blockDim.x / WARP;
        for (int other = 0; other < warps; ++other)
            if (other != warp)
                for (int k = 0; k < (used + 3) / 4; ++k)
                    better += better_of(best[other * (WARP / 4) + k], own, other < warp);
        if (real && better < used) chosen[better] = expert, kept[better] = value;
    }
    __syncthreads();
    if (warp) return;

    float weight = lane < used ? kept[lane] : 0.0f, sum = 0.0f;
    if (score == SELECTED) weight = expf(weight - largest);
    const bool divided = score == SELECTED || renormalise;
#pragma unroll 8
    for (int k = 0; k < used; ++k) sum += __shfl_sync(ALL_LANES, weight, k);
    // As llama.cpp: the sum of renormalised weights counts as 2^-14 at least.
    if (score != SELECTED) sum = fmaxf(sum, 6.103515625e-5f);
    if (lane < used) weights[lane] = (divided ? weight / sum : weight) * scale;
}
