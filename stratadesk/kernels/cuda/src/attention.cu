// Attention of a few tokens over a KV cache in F32, F16 or Q8_0 (CACHE), split over the context.
//
// The cache of a layer is one row per token and kv head. A block takes one query head of one
// token and a span of the context; its warps go through tiles of 32 keys with a running maximum,
// and `combine` joins the spans. Spans begin at absolute positions, so a token's result has the
// same bits in any window.
#include "fixed.cuh"

constexpr int WARPS = 4, TILE = WARP;
constexpr int CACHE_F32 = 0, CACHE_F16 = 1, CACHE_Q8_0 = 2;

#if CACHE == 0
constexpr int VALUE_BYTES = 4;
#else
constexpr int VALUE_BYTES = 2;
#endif

DEVICE u64 cached_row_bytes(int size) {
    return CACHE == CACHE_Q8_0 ? u64(size / 32) * 34 : u64(size) * VALUE_BYTES;
}

// The lane's COUNT values of a cached row: those from lane · COUNT on. Written by an earlier
// kernel of the same step, so read with ordinary loads.
template <int COUNT> DEVICE void read_cached(const u8 *row, int lane, float *values) {
    const int first = lane * COUNT;
    if (CACHE == CACHE_F32) {
        const float *at = reinterpret_cast<const float *>(row) + first;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) values[i] = at[i];
    } else if (CACHE == CACHE_F16) {
        const u32 *at = reinterpret_cast<const u32 *>(row + 2 * first);
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            const u32 pair = at[i];
            values[2 * i] = half_to_float(u16(pair));
            values[2 * i + 1] = half_to_float(u16(pair >> 16));
        }
    } else {
        const u8 *block = row + first / 32 * 34;
        const float scale = half_to_float(*reinterpret_cast<const u16 *>(block));
        const i8 *at = reinterpret_cast<const i8 *>(block + 2 + first % 32);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) values[i] = float(at[i]) * scale;
    }
}

// partials[t, h, split] = maximum, sum, then the SIZE values of sum(exp(score - maximum) · v).
template <int SIZE>
DEVICE void attend(const float *q, const u8 *keys, const u8 *values, const i32 *start,
                   float *partials, int heads, int kv_heads, float scale, int window, int span) {
    constexpr int COUNT = SIZE / WARP;
    const int split = blockIdx.x, head = blockIdx.y, token = blockIdx.z;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int end = *start + token + 1, begin = window > 0 ? max(0, end - window) : 0;
    const int first = split * span, last = min(first + span, end);
    if (first >= end || last <= begin) return;

    const int kv_head = head / (heads / kv_heads);
    const u64 row_bytes = cached_row_bytes(SIZE), stride = row_bytes * kv_heads;
    keys += kv_head * row_bytes, values += kv_head * row_bytes;
    float query[COUNT], sums[COUNT] = {};
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        query[i] = q[(u64(token) * heads + head) * SIZE + lane * COUNT + i];
    const float lowest = __int_as_float(0xff800000);
    float largest = lowest, total = 0.0f;

    for (int tile = first + warp * TILE; tile < last; tile += WARPS * TILE) {
        if (tile + TILE <= begin) continue;
        float score = lowest;
        for (int i = 0; i < TILE; ++i) {
            const int key = tile + i;
            if (key < begin || key >= last) continue;
            float row[COUNT], dot = 0.0f;
            read_cached<COUNT>(keys + key * stride, lane, row);
#pragma unroll
            for (int c = 0; c < COUNT; ++c) dot = fmaf(query[c], row[c], dot);
            dot = warp_sum(dot) * scale;
            if (lane == i) score = dot;
        }
        const float grown = fmaxf(largest, warp_max(score));
        const float shrink = expf(largest - grown), weight = expf(score - grown);
        largest = grown;
        total = total * shrink + warp_sum(weight);
#pragma unroll
        for (int c = 0; c < COUNT; ++c) sums[c] *= shrink;
        for (int i = 0; i < TILE; ++i) {
            const int key = tile + i;
            if (key < begin || key >= last) continue;
            const float share = __shfl_sync(ALL_LANES, weight, i);
            float row[COUNT];
            read_cached<COUNT>(values + key * stride, lane, row);
#pragma unroll
            for (int c = 0; c < COUNT; ++c) sums[c] = fmaf(share, row[c], sums[c]);
        }
    }

    __shared__ float maxima[WARPS], totals[WARPS], parts[WARPS][SIZE];
    if (lane == 0) maxima[warp] = largest, totals[warp] = total;
#pragma unroll
    for (int c = 0; c < COUNT; ++c) parts[warp][lane * COUNT + c] = sums[c];
    __syncthreads();
    float top = lowest;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) top = fmaxf(top, maxima[w]);
    float *out = partials + ((u64(token) * heads + head) * gridDim.x + split) * (SIZE + 2);
    for (int c = threadIdx.x; c < SIZE; c += blockDim.x) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w)
            if (maxima[w] > lowest) sum = fmaf(expf(maxima[w] - top), parts[w][c], sum);
        out[2 + c] = sum;
    }
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; ++w)
            if (maxima[w] > lowest) sum = fmaf(expf(maxima[w] - top), totals[w], sum);
        out[0] = top, out[1] = sum;
    }
}

extern "C" {

#define ATTEND(SIZE)                                                                              \
    __global__ void __launch_bounds__(WARPS *WARP) attend_##SIZE(                                 \
        const float *q, const u8 *keys, const u8 *values, const i32 *start, float *partials,      \
        int heads, int kv_heads, float scale, int window, int span) {                             \
        attend<SIZE>(q, keys, values, start, partials, heads, kv_heads, scale, window, span);     \
    }
ATTEND(64)
ATTEND(128)
ATTEND(256)

// out[t, h] from the spans that hold tokens it sees, joined in their order; `sinks` [heads] are
// scores without a value, or null. Then times sigmoid(gate[t, h]) if there is a gate. Unless `fixed`
// is null, also in fixed point, a row a token.
__global__ void combine(const float *partials, const float *sinks, const float *gate,
                        const i32 *start, float *out, u8 *fixed, int splits, int size, int window,
                        int span) {
    const int head = blockIdx.x, heads = gridDim.x, token = blockIdx.y, columns = heads * size;
    const int end = *start + token + 1, begin = window > 0 ? max(0, end - window) : 0;
    const int first = begin / span, last = (end - 1) / span + 1;
    const float *from = partials + (u64(token) * heads + head) * splits * (size + 2);
    float top = sinks ? sinks[head] : __int_as_float(0xff800000);
    for (int s = first; s < last; ++s) top = fmaxf(top, from[s * (size + 2)]);
    float total = sinks ? expf(sinks[head] - top) : 0.0f;
    for (int s = first; s < last; ++s)
        total = fmaf(expf(from[s * (size + 2)] - top), from[s * (size + 2) + 1], total);
    for (int c = threadIdx.x; c < size; c += blockDim.x) {
        float sum = 0.0f;
        for (int s = first; s < last; ++s)
            sum = fmaf(expf(from[s * (size + 2)] - top), from[s * (size + 2) + 2 + c], sum);
        const u64 at = (u64(token) * heads + head) * size + c;
        const float value = sum / total * (gate ? sigmoid(gate[at]) : 1.0f);
        out[at] = value;
        if (fixed)
            write_fixed(fixed + token * fixed_row_bytes(columns), columns, head * size + c, value);
    }
}

// Store keys and values [tokens, heads, size] from token *start on; one warp per 32 values
// (blockIdx.x), one row of blocks a token (blockIdx.y), keys and values side by side (blockIdx.z).
// Q8_0: scale = largest magnitude / 127.
__global__ void __launch_bounds__(WARP)
    store(const float *k, const float *v, u8 *keys, u8 *values, const i32 *start, int row_values) {
    const int lane = threadIdx.x, at = blockIdx.x * WARP + lane;
    const float value = (blockIdx.z ? v : k)[u64(blockIdx.y) * row_values + at];
    u8 *cache = blockIdx.z ? values : keys;
    const u64 token = *start + blockIdx.y;
    if (CACHE == CACHE_F32) {
        reinterpret_cast<float *>(cache)[token * row_values + at] = value;
    } else if (CACHE == CACHE_F16) {
        reinterpret_cast<u16 *>(cache)[token * row_values + at] = float_to_half(value);
    } else {
        const float scale = warp_max(fabsf(value)) / 127.0f;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        u8 *block = cache + (token * (row_values / 32) + blockIdx.x) * 34;
        if (lane == 0) *reinterpret_cast<u16 *>(block) = float_to_half(scale);
        block[2 + lane] = u8(i8(__float2int_rn(value * inverse)));
    }
}
}
