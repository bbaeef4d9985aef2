// Queries and keys as attention takes them: normed heads, rotated.
#pragma once
#include "bits.cuh"

// Value threadIdx.x of a head of `size` values `from`: normed, unless `norm` is null, its first
// 2 · pairs values rotated by the angles `cos` and `sin` [pairs]. All threads of a block, at least
// `size`, must come here; `values` and `scratch` are shared memory for a float a thread and a warp.
DEVICE float prepared_head(const float *from, const float *norm, const float *cos, const float *sin,
                           int size, int pairs, float eps, float *values, float *scratch) {
    const int i = threadIdx.x;
    float value = i < size ? from[i] : 0.0f;
    if (norm) {
        const float squares = block_sum(value * value, scratch);
        if (i < size) value *= 1.0f / sqrtf(squares / float(size) + eps) * norm[i];
    }
    values[i] = value;
    __syncthreads();
    if (i >= 2 * pairs) return value;
    const int p = i % pairs;
    const float c = cos[p], s = sin[p];
    return i < pairs ? __fsub_rn(__fmul_rn(value, c), __fmul_rn(values[i + pairs], s))
                     : __fadd_rn(__fmul_rn(values[p], s), __fmul_rn(value, c));
}
