// Attention of a few tokens over a KV cache in F32, F16 or Q8_0 (CACHE), split over the context.
//
// The cache of a layer is one row per token and kv head. A block takes the query heads of a kv head,
// up to eight of them, for one token and a span of what it sees, so that a row of the cache is read
// once for all of them; `combine` joins the spans. Each warp goes through keys of its own, four at a
// time, with running maxima: a lane holds eight places of every query and of every sum. Which keys a
// warp takes follows from the token's position alone, so a token's result has the same bits in any
// window.
#include "fixed.cuh"
#include "heads.cuh"

constexpr int WARPS = 8, THREADS = WARPS * WARP, HEADS = 8, KEYS = 4;
constexpr int MOST_SPLITS = 64, SPLIT_GROUPS = 8, JOINED = 32;
constexpr int CACHE_F32 = 0, CACHE_F16 = 1, CACHE_Q8_0 = 2;
constexpr float LOWEST = -3.0e38f;

#if CACHE == 0
constexpr int VALUE_BYTES = 4;
#else
constexpr int VALUE_BYTES = 2;
#endif

DEVICE u64 cached_row_bytes(int size) {
    return CACHE == CACHE_Q8_0 ? u64(size / 32) * 34 : u64(size) * VALUE_BYTES;
}

// Eight values of a row of the cache as they lie there. Written by an earlier kernel of the same step,
// so read with ordinary loads.
struct Eight {
    u32 words[2 * VALUE_BYTES];
};

// Those from `at` (a multiple of 8) on.
DEVICE Eight load_eight(const u8 *row, int at) {
    Eight out;
    if (CACHE == CACHE_Q8_0) {
        const u8 *block = row + at / 32 * 34;
        load_words<2>(block + 2 + at % 32, out.words);
        out.words[2] = load16(block);
        return out;
    }
#pragma unroll
    for (int i = 0; i < VALUE_BYTES / 2; ++i) {
        const uint4 words = load128(row + VALUE_BYTES * at + 16 * i);
        out.words[4 * i] = words.x, out.words[4 * i + 1] = words.y;
        out.words[4 * i + 2] = words.z, out.words[4 * i + 3] = words.w;
    }
    return out;
}

DEVICE void to_floats(const Eight &eight, float *values) {
    const float scale = CACHE == CACHE_Q8_0 ? half_to_float(u16(eight.words[2])) : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (CACHE == CACHE_F32) values[i] = __uint_as_float(eight.words[i]);
        if (CACHE == CACHE_F16) values[i] = half_to_float(u16(eight.words[i / 2] >> (16 * (i % 2))));
        if (CACHE == CACHE_Q8_0)
            values[i] = scale * signed_byte_to_float((eight.words[i / 4] >> (8 * (i % 4))) & 255u);
    }
}

DEVICE void load_heads(const float *from, float *values) {
    const float4 low = *reinterpret_cast<const float4 *>(from);
    const float4 high = *reinterpret_cast<const float4 *>(from + 4);
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

// How many of `count` tokens a block goes through: MOST_SPLITS blocks are enough.
DEVICE int span_of(int count) {
    constexpr int LEAST = WARPS * KEYS;
    return (count + LEAST * MOST_SPLITS - 1) / (LEAST * MOST_SPLITS) * LEAST;
}

// The sum of value lane % N over each N lanes of a warp, N a power of two: at each distance a lane hands
// half of its values over and keeps the sums of the others.
template <int N> DEVICE float own_sum(const float (&values)[N]) {
    if constexpr (N == 1) {
        return values[0];
    } else {
        const bool upper = threadIdx.x & (N / 2);
        float sums[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float low = values[i], high = values[i + N / 2];
            sums[i] = (upper ? high : low) +
                      __shfl_xor_sync(ALL_LANES, upper ? low : high, N / 2);
        }
        return own_sum<N / 2>(sums);
    }
}

// The sum over, or the largest of, the four lanes of a warp that hold scores of the same head.
template <int LOADS, int ROW_LANES, bool SUM> DEVICE float over_keys(float value) {
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        if (distance >= LOADS && distance < ROW_LANES) continue;
        const float other = __shfl_xor_sync(ALL_LANES, value, distance);
        value = SUM ? value + other : fmaxf(value, other);
    }
    return value;
}

// sums[t, h, split] = sum of exp(score - maximum) · v over a span, SIZE values; maxima[t, h, split] =
// that maximum and the sum of exp(score - maximum).
template <int SIZE>
DEVICE void attend(const float *q, const u8 *keys, const u8 *values, const i32 *start, float *sums,
                   float *maxima, int heads, int kv_heads, float scale, int window) {
    // A row of the cache is read by ROW_LANES lanes, AT_ONCE rows by a warp.
    constexpr int ROW_LANES = SIZE / 8, AT_ONCE = WARP / ROW_LANES, LOADS = KEYS / AT_ONCE;
    alignas(16) __shared__ float weights[WARPS][KEYS][HEADS], shrinks[WARPS][HEADS];
    alignas(16) __shared__ float joined[WARPS / 2][HEADS][SIZE];
    __shared__ float tops[WARPS][HEADS], totals[WARPS][HEADS];
    const int split = blockIdx.x, token = blockIdx.z;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int within = lane % ROW_LANES, row_of_lane = lane / ROW_LANES;
    const int group = heads / kv_heads, pieces = (group + HEADS - 1) / HEADS;
    const int kv_head = blockIdx.y / pieces, piece = blockIdx.y % pieces * HEADS;
    const int count = min(HEADS, group - piece);
    const u64 row = u64(token) * heads + kv_head * group + piece;
    const u64 row_bytes = cached_row_bytes(SIZE), stride = row_bytes * kv_heads;
    keys += kv_head * row_bytes, values += kv_head * row_bytes;

    float query[HEADS][8], own[HEADS][8] = {};
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        load_heads(q + (row + min(h, count - 1)) * SIZE + 8 * within, query[h]);
#pragma unroll
        for (int i = 0; i < 8; ++i) query[h][i] *= scale;
    }
    // Behind the queries' loads, which need not wait for this one.
    const int end = *start + token + 1, begin = window > 0 ? max(0, end - window) : 0;
    const int span = span_of(end - begin), first = begin + split * span;
    const int last = min(first + span, end);
    if (first >= end) return;

    // Once scores are summed over a row's lanes, each lane has that of one head and key.
    const int head = within / LOADS, slot = within % LOADS * AT_ONCE + row_of_lane;
    float best = LOWEST, total = 0.0f;

    for (int key = first + warp * KEYS; key < last; key += WARPS * KEYS) {
        Eight k[LOADS], v[LOADS];
#pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            const u64 at = min(key + l * AT_ONCE + row_of_lane, last - 1) * stride;
            k[l] = load_eight(keys + at, 8 * within), v[l] = load_eight(values + at, 8 * within);
        }
        float scores[HEADS * LOADS];
#pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            float row_values[8];
            to_floats(k[l], row_values);
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; ++i) dot = fmaf(query[h][i], row_values[i], dot);
                scores[h * LOADS + l] = dot;
            }
        }
        const float sum = own_sum<HEADS * LOADS>(scores);
        const bool seen = key + slot < last;
        const float score = seen ? sum : LOWEST;
        const float higher = fmaxf(best, over_keys<LOADS, ROW_LANES, false>(score));
        const float shrink = expf(best - higher), weight = seen ? expf(score - higher) : 0.0f;
        const bool moved = __ballot_sync(ALL_LANES, higher > best);
        total = fmaf(total, shrink, weight), best = higher;
        weights[warp][slot][head] = weight;
        if (slot == 0) shrinks[warp][head] = shrink;
        __syncwarp();
        if (moved) {
            float factors[HEADS];
            load_heads(shrinks[warp], factors);
#pragma unroll
            for (int h = 0; h < HEADS; ++h)
#pragma unroll
                for (int i = 0; i < 8; ++i) own[h][i] *= factors[h];
        }
#pragma unroll
        for (int l = 0; l < LOADS; ++l) {
            float row_values[8], factors[HEADS];
            to_floats(v[l], row_values);
            load_heads(weights[warp][l * AT_ONCE + row_of_lane], factors);
#pragma unroll
            for (int h = 0; h < HEADS; ++h)
#pragma unroll
                for (int i = 0; i < 8; ++i) own[h][i] = fmaf(factors[h], row_values[i], own[h][i]);
        }
        __syncwarp();
    }

    total = over_keys<LOADS, ROW_LANES, true>(total);
    if (slot == 0) tops[warp][head] = best, totals[warp][head] = total;
    __syncthreads();
    float top = tops[0][head];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) top = fmaxf(top, tops[w][head]);
    if (slot == 0) shrinks[warp][head] = expf(best - top);
    __syncwarp();
    float factors[HEADS];
    load_heads(shrinks[warp], factors);
#pragma unroll
    for (int h = 0; h < HEADS; ++h)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            own[h][i] *= factors[h];
#pragma unroll
            for (int distance = ROW_LANES; distance < WARP; distance *= 2)
                own[h][i] += __shfl_xor_sync(ALL_LANES, own[h][i], distance);
        }
    // The upper warps hand theirs to the lower ones, then threads sum what four warps hold.
#pragma unroll
    for (int half = 1; half >= 0; --half) {
        if (warp / (WARPS / 2) == half && row_of_lane == 0)
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float *to = joined[warp % (WARPS / 2)][h] + 8 * within;
#pragma unroll
                for (int i = 0; i < 8; ++i) to[i] = half ? own[h][i] : own[h][i] + to[i];
            }
        __syncthreads();
    }
    const u64 splits = gridDim.x, out = row * splits + split;
    for (int i = threadIdx.x; i < count * SIZE; i += THREADS) {
        const int h = i / SIZE;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS / 2; ++w) sum += joined[w][h][i % SIZE];
        sums[(out + h * splits) * SIZE + i % SIZE] = sum;
    }
    if (threadIdx.x < count) {
        const int h = threadIdx.x;
        float largest = tops[0][h], sum = 0.0f;
#pragma unroll
        for (int w = 1; w < WARPS; ++w) largest = fmaxf(largest, tops[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum = fmaf(totals[w][h], expf(tops[w][h] - largest), sum);
        float *own_maxima = maxima + 2 * (out + h * splits);
        own_maxima[0] = largest, own_maxima[1] = sum;
    }
}

// Value `at` of the `row_values` of a token's row in the cache; the lanes of a warp hold 32 values side by
// side, whose first is a multiple of 32. Q8_0: scale = largest magnitude / 127.
DEVICE void store_value(u8 *cache, u64 token, int row_values, int at, float value) {
    if (CACHE == CACHE_F32) {
        reinterpret_cast<float *>(cache)[token * row_values + at] = value;
    } else if (CACHE == CACHE_F16) {
        reinterpret_cast<u16 *>(cache)[token * row_values + at] = float_to_half(value);
    } else {
        const float scale = warp_max(fabsf(value)) / 127.0f;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        u8 *block = cache + (token * (row_values / 32) + at / 32) * 34;
        if (at % 32 == 0) *reinterpret_cast<u16 *>(block) = float_to_half(scale);
        block[2 + at % 32] = u8(i8(__float2int_rn(value * inverse)));
    }
}

extern "C" {

#define ATTEND(SIZE)                                                                              \
    __global__ void __launch_bounds__(THREADS, 1) attend_##SIZE(                                  \
        const float *q, const u8 *keys, const u8 *values, const i32 *start, float *sums,          \
        float *maxima, int heads, int kv_heads, float scale, int window) {                        \
        take_turn();                                                                              \
        attend<SIZE>(q, keys, values, start, sums, maxima, heads, kv_heads, scale, window);       \
    }
ATTEND(64)
ATTEND(128)
ATTEND(256)

// out[t, h] from the spans of what it sees, joined in their order; `sinks` [heads] are scores without a
// value, or null. Then times sigmoid(gate[t, h]) if there is a gate. Unless `fixed` is null, also in
// fixed point, a row a token. A block takes JOINED places of a head (blockIdx.z), SPLIT_GROUPS threads
// each; everything is asked for before it is known how many spans there are.
__global__ void __launch_bounds__(SPLIT_GROUPS *JOINED)
    combine(const float *sums, const float *maxima, const float *sinks, const float *gate,
            const i32 *start, float *out, u8 *fixed, int splits, int size, int window) {
    take_turn();
    constexpr int PARTS = MOST_SPLITS / SPLIT_GROUPS, OF_A_LANE = MOST_SPLITS / WARP;
    __shared__ float weights[MOST_SPLITS], joined[SPLIT_GROUPS][JOINED], whole;
    const int head = blockIdx.x, heads = gridDim.x, token = blockIdx.y, columns = heads * size;
    const int within = threadIdx.x % JOINED, own = threadIdx.x / JOINED;
    const int place = blockIdx.z * JOINED + within;
    const u64 row = u64(token) * heads + head, at = row * size + place;
    const float *from = sums + row * splits * size + place, *pairs = maxima + 2 * row * splits;
    float parts[PARTS], largest[OF_A_LANE], totals[OF_A_LANE];
#pragma unroll
    for (int k = 0; k < PARTS; ++k)
        parts[k] = from[u64(min(k * SPLIT_GROUPS + own, splits - 1)) * size];
#pragma unroll
    for (int k = 0; k < OF_A_LANE; ++k) {
        const int split = min(k * WARP + int(threadIdx.x) % WARP, splits - 1);
        largest[k] = pairs[2 * split], totals[k] = pairs[2 * split + 1];
    }
    const float gated = gate && own == 0 ? gate[at] : 0.0f, sink = sinks ? sinks[head] : LOWEST;
    const int end = *start + token + 1, seen = window > 0 ? min(window, end) : end;
    const int count = (seen + span_of(seen) - 1) / span_of(seen);

    if (threadIdx.x < WARP) {
        float top = sink, total = 0.0f;
#pragma unroll
        for (int k = 0; k < OF_A_LANE; ++k)
            if (k * WARP + threadIdx.x < count) top = fmaxf(top, largest[k]);
        top = warp_max(top);
#pragma unroll
        for (int k = 0; k < OF_A_LANE; ++k) {
            const bool real = k * WARP + threadIdx.x < count;
            const float weight = real ? expf(largest[k] - top) : 0.0f;
            weights[k * WARP + threadIdx.x] = weight;
            if (real) total = fmaf(weight, totals[k], total);
        }
        total = warp_sum(total);
        if (threadIdx.x == 0) whole = sinks ? total + expf(sink - top) : total;
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PARTS; ++k)
        if (k * SPLIT_GROUPS + own < count)
            sum = fmaf(weights[k * SPLIT_GROUPS + own], parts[k], sum);
    joined[own][within] = sum;
    __syncthreads();
    if (own) return;
#pragma unroll
    for (int other = 1; other < SPLIT_GROUPS; ++other) sum += joined[other][within];
    const float value = sum / whole * (gate ? sigmoid(gated) : 1.0f);
    out[at] = value;
    if (fixed)
        write_fixed(fixed + token * fixed_row_bytes(columns), head * size + place, value);
}

// Keys and values [tokens, heads, size] to the cache, from token *start on; one warp per 32 values
// (blockIdx.x), one row of blocks a token (blockIdx.y), keys and values side by side (blockIdx.z).
__global__ void __launch_bounds__(WARP)
    store(const float *k, const float *v, u8 *keys, u8 *values, const i32 *start, int row_values) {
    take_turn();
    const int at = blockIdx.x * WARP + threadIdx.x;
    const float value = (blockIdx.z ? v : k)[u64(blockIdx.y) * row_values + at];
    store_value(blockIdx.z ? values : keys, *start + blockIdx.y, row_values, at, value);
}

// `prepare_heads` (vectors.cu) and `store` at once. Block (h, t): query head h, key head h - heads, or
// value head h - heads - kv_heads of v [tokens, kv_heads, size]; `size` is a multiple of 32.
__global__ void prepare_and_store(const float *queries, const float *raw_keys, const float *v,
                                  const float *query_norm, const float *key_norm, const float *cos,
                                  const float *sin, float *q, float *gates, u8 *keys, u8 *values,
                                  const i32 *start, int heads, int kv_heads, int size, int pairs,
                                  int gated, float eps) {
    take_turn();
    __shared__ float head_values[1024], scratch[WARP];
    const int i = threadIdx.x, t = blockIdx.y, h = blockIdx.x, row_values = kv_heads * size;
    if (h >= heads + kv_heads) {
        const int at = (h - heads - kv_heads) * size + i;
        if (i < size) store_value(values, *start + t, row_values, at, v[u64(t) * row_values + at]);
        return;
    }
    const bool query = h < heads;
    const u64 row = query ? u64(t) * heads + h : u64(t) * kv_heads + h - heads;
    const float *from = (query ? queries : raw_keys) + row * (query && gated ? 2 * size : size);
    const float value = prepared_head(from, query ? query_norm : key_norm, cos + t * pairs,
                                      sin + t * pairs, size, pairs, eps, head_values, scratch);
    if (i >= size) return;
    if (!query) return store_value(keys, *start + t, row_values, (h - heads) * size + i, value);
    q[row * size + i] = value;
    if (gated) gates[row * size + i] = from[size + i];
}
}
