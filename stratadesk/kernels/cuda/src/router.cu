// The router: scores, the best experts, their weights. One warp a token.
#include "bits.cuh"

constexpr int SOFTMAX = 0, SIGMOID = 1, SELECTED = 2;
constexpr int MOST_EXPERTS = 1024, SCORES = MOST_EXPERTS / WARP, MOST_USED = 32;

extern "C" __global__ void __launch_bounds__(WARP)
    route(const float *logits, const float *bias, i32 *chosen, float *weights, int experts,
          int used, int score, int renormalise, float scale) {
    const int lane = threadIdx.x;
    logits += u64(blockIdx.x) * experts;
    chosen += u64(blockIdx.x) * used, weights += u64(blockIdx.x) * used;
    const float lowest = __int_as_float(0xff800000);

    // Lane l keeps experts l, l + 32, …: scores to choose by, and whether they are still to choose.
    float values[SCORES];
    float largest = lowest;
#pragma unroll
    for (int i = 0; i < SCORES; ++i) {
        const int expert = lane + WARP * i;
        values[i] = expert < experts ? logits[expert] : lowest;
        largest = fmaxf(largest, values[i]);
    }
    largest = warp_max(largest);
    float total = 0.0f;
    if (score == SOFTMAX) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            if (lane + WARP * i < experts) total += values[i] = expf(values[i] - largest);
        total = warp_sum(total);
    }
#pragma unroll
    for (int i = 0; i < SCORES; ++i) {
        const int expert = lane + WARP * i;
        if (expert >= experts) continue;
        if (score == SOFTMAX) values[i] /= total;
        if (score == SIGMOID) values[i] = sigmoid(values[i]);
    }

    __shared__ float kept[MOST_USED];
    u32 taken = 0;
    for (int k = 0; k < used; ++k) {
        float best = lowest;
        int where = MOST_EXPERTS;
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            const int expert = lane + WARP * i;
            if (expert >= experts || taken >> i & 1u) continue;
            float value = bias ? values[i] + bias[expert] : values[i];
            // A NaN compares with nothing: as the lowest, it cannot lead to an expert that is none.
            if (!(value >= lowest)) value = lowest;
            if (value > best || where == MOST_EXPERTS) best = value, where = expert;
        }
        // The best of all lanes; equal ones: the one with the lowest index.
#pragma unroll
        for (int distance = WARP / 2; distance; distance >>= 1) {
            const float other = __shfl_xor_sync(ALL_LANES, best, distance);
            const int at = __shfl_xor_sync(ALL_LANES, where, distance);
            if (at != MOST_EXPERTS &&
                (where == MOST_EXPERTS || other > best || (other == best && at < where)))
                best = other, where = at;
        }
        float value = 0.0f;
#pragma unroll
        for (int i = 0; i < SCORES; ++i)
            if (lane + WARP * i == where) value = values[i], taken |= 1u << i;
        value = __shfl_sync(ALL_LANES, value, where % WARP);
        if (lane == 0) chosen[k] = where, kept[k] = value;
    }
    __syncwarp();
    if (lane) return;

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
