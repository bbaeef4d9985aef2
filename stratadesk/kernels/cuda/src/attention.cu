// Attention of a few tokens over a KV cache in F32, F16 or Q8_0 (CACHE), split over the context.
//
// The cache of a layer is one row per token and kv head. A block takes the query heads of a kv head,
// up to eight of them, for one token and a span of the context, so that a row of the cache is read
// once for all of them. It goes through tiles of 128 keys with running maxima, and `combine` joins
// the spans. Spans begin at absolute positions, so a token's result has the same bits in any window.
#include "fixed.cuh"

constexpr int WARPS = 8, THREADS = WARPS * WARP, TILE = 128, HEADS = 8, LANES_OF_A_KEY = 4;
constexpr int CACHE_F32 = 0, CACHE_F16 = 1, CACHE_Q8_0 = 2;

#if CACHE == 0
constexpr int VALUE_BYTES = 4;
#else
constexpr int VALUE_BYTES = 2;
#endif

DEVICE u64 cached_row_bytes(int size) {
    return CACHE == CACHE_Q8_0 ? u64(size / 32) * 34 : u64(size) * VALUE_BYTES;
}

// Eight values of a cached row from `at` (a multiple of 8) on. Written by an earlier kernel of the
// same step, so read with ordinary loads.
DEVICE void read_eight(const u8 *row, int at, float *values) {
    if (CACHE == CACHE_F32) {
        const float *from = reinterpret_cast<const float *>(row) + at;
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = from[i];
    } else if (CACHE == CACHE_F16) {
        const uint4 words = load128(row + 2 * at);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = half_to_float(u16(pairs[i / 2] >> (16 * (i % 2))));
    } else {
        const u8 *block = row + at / 32 * 34;
        const float scale = half_to_float(load16(block));
        u32 quants[2];
        load_words<2>(block + 2 + at % 32, quants);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            values[i] = signed_byte_to_float((quants[i / 4] >> (8 * (i % 4))) & 255u) * scale;
    }
}

// One of them.
DEVICE float read_one(const u8 *row, int at) {
    if (CACHE == CACHE_F32) return reinterpret_cast<const float *>(row)[at];
    if (CACHE == CACHE_F16) return half_to_float(load16(row + 2 * at));
    const u8 *block = row + at / 32 * 34;
    return signed_byte_to_float(block[2 + at % 32]) * half_to_float(load16(block));
}

// partials[t, h, split] = maximum, sum, then the SIZE values of sum(exp(score - maximum) · v).
template <int SIZE>
DEVICE void attend(const float *q, const u8 *keys, const u8 *values, const i32 *start,
                   float *partials, int heads, int kv_heads, float scale, int window, int span) {
    constexpr int KEY_GROUPS = THREADS / SIZE, CHUNKS = SIZE / (8 * LANES_OF_A_KEY);
    __shared__ float query[HEADS][SIZE], scores[HEADS][TILE], joined[KEY_GROUPS][HEADS][SIZE];
    __shared__ float largest[HEADS], totals[HEADS], shrinks[HEADS];
    const int split = blockIdx.x, token = blockIdx.z;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int end = *start + token + 1, begin = window > 0 ? max(0, end - window) : 0;
    const int first = split * span, last = min(first + span, end);
    if (first >= end || last <= begin) return;

    const int group = heads / kv_heads, pieces = (group + HEADS - 1) / HEADS;
    const int kv_head = blockIdx.y / pieces, piece = blockIdx.y % pieces * HEADS;
    const int count = min(HEADS, group - piece);
    const u64 row = (u64(token) * heads + kv_head * group + piece);
    const u64 row_bytes = cached_row_bytes(SIZE), stride = row_bytes * kv_heads;
    keys += kv_head * row_bytes, values += kv_head * row_bytes;
    for (int i = threadIdx.x; i < HEADS * SIZE; i += THREADS)
        query[i / SIZE][i % SIZE] = i < count * SIZE ? q[row * SIZE + i] * scale : 0.0f;
    const float lowest = __int_as_float(0xff800000);
    if (threadIdx.x < HEADS) largest[threadIdx.x] = lowest, totals[threadIdx.x] = 0.0f;
    float sums[HEADS] = {};

    for (int tile = first; tile < last; tile += TILE) {
        if (tile + TILE <= begin) continue;
        __syncthreads();
        const int part = lane % LANES_OF_A_KEY;
#pragma unroll 1
        for (int pass = 0; pass < TILE; pass += THREADS / LANES_OF_A_KEY) {
            const int place = pass + threadIdx.x / LANES_OF_A_KEY, key = tile + place;
            const bool seen = key >= begin && key < last;
            float dots[HEADS] = {};
            if (seen)
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    const int at = 8 * (c * LANES_OF_A_KEY + part);
                    float k[8];
                    read_eight(keys + key * stride, at, k);
#pragma unroll
                    for (int h = 0; h < HEADS; ++h)
#pragma unroll
                        for (int i = 0; i < 8; ++i) dots[h] = fmaf(query[h][at + i], k[i], dots[h]);
                }
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                dots[h] += __shfl_xor_sync(ALL_LANES, dots[h], 1);
                dots[h] += __shfl_xor_sync(ALL_LANES, dots[h], 2);
                if (part == 0) scores[h][place] = seen ? dots[h] : lowest;
            }
        }
        __syncthreads();
        // A warp a head: scores become weights.
        float own[TILE / WARP], best = largest[warp], sum = 0.0f;
        const float before = best;
#pragma unroll
        for (int i = 0; i < TILE / WARP; ++i) {
            own[i] = scores[warp][WARP * i + lane];
            best = fmaxf(best, own[i]);
        }
        best = warp_max(best);
#pragma unroll
        for (int i = 0; i < TILE / WARP; ++i) {
            own[i] = expf(own[i] - best), sum += own[i];
            scores[warp][WARP * i + lane] = own[i];
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            shrinks[warp] = expf(before - best), largest[warp] = best;
            totals[warp] = totals[warp] * shrinks[warp] + sum;
        }
        __syncthreads();
        const int dim = threadIdx.x % SIZE, upto = min(TILE, last - tile);
#pragma unroll
        for (int h = 0; h < HEADS; ++h) sums[h] *= shrinks[h];
#pragma unroll 2
        for (int place = max(0, begin - tile) / KEY_GROUPS * KEY_GROUPS + threadIdx.x / SIZE;
             place < upto; place += KEY_GROUPS) {
            // Keys that are not seen have no weight.
            const float v = read_one(values + (tile + place) * stride, dim);
#pragma unroll
            for (int h = 0; h < HEADS; ++h) sums[h] = fmaf(scores[h][place], v, sums[h]);
        }
    }

#pragma unroll
    for (int h = 0; h < HEADS; ++h) joined[threadIdx.x / SIZE][h][threadIdx.x % SIZE] = sums[h];
    __syncthreads();
    float *out = partials + (row * gridDim.x + split) * (SIZE + 2);
    for (int i = threadIdx.x; i < count * SIZE; i += THREADS) {
        float sum = 0.0f;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; ++g) sum += joined[g][i / SIZE][i % SIZE];
        out[u64(i / SIZE) * gridDim.x * (SIZE + 2) + 2 + i % SIZE] = sum;
    }
    if (threadIdx.x < count) {
        float *own = out + u64(threadIdx.x) * gridDim.x * (SIZE + 2);
        own[0] = largest[threadIdx.x], own[1] = totals[threadIdx.x];
    }
}

extern "C" {

#define ATTEND(SIZE)                                                                              \
    __global__ void __launch_bounds__(THREADS) attend_##SIZE(                                     \
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
