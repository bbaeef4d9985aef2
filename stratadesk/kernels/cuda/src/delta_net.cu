// The gated delta net for a few tokens. Its states are kept twice: a step reads the side *side
// (0 or 1) and writes the other, so that a step that is not committed has changed nothing.
#include "fixed.cuh"

constexpr int MOST_TOKENS = 8, MOST_TAPS = 8, KEY_GROUPS = 4, COLUMNS = WARP / KEY_GROUPS;

// A column for each thread: rows from before the first token, and one a token.
template <int WIDTH> struct alignas(16) Rows {
    float at[MOST_TAPS - 1 + MOST_TOKENS][WIDTH];
};

// Exp(softplus(x) · a): what a state keeps of itself.
DEVICE float decay_of(float x, float a) {
    return expf((x > 20.0f ? x : logf(1.0f + expf(x))) * a);
}

// Into the thread's column: `past` rows of `history`, then `tokens` rows of `u`; both have one value
// every `stride`.
template <int WIDTH>
DEVICE void fetch(Rows<WIDTH> &rows, const float *history, int past, const float *u, int stride,
                  int tokens) {
    constexpr int AT_ONCE = 4;
#pragma unroll 1
    for (int first = 0; first < past + tokens; first += AT_ONCE) {
        float values[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int row = first + i;
            if (row < past + tokens)
                values[i] = *(row < past ? history + row * stride : u + (row - past) * stride);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (first + i < past + tokens) rows.at[first + i][threadIdx.x] = values[i];
    }
}

// Row t of the thread's column = silu(sum over j of weight[j] · u[t - (taps - 1) + j]) of one channel;
// u is [tokens, channels], its rows before the first are `before`, oldest first. Unless `after` is
// null, the last taps - 1 rows are written there.
template <int WIDTH>
DEVICE void convolve(Rows<WIDTH> &rows, const float *u, const float *weight, const float *before,
                     float *after, int channels, int taps, int tokens) {
    constexpr int HELD = 4;
    const int past = taps - 1, column = threadIdx.x;
    float factors[HELD];
#pragma unroll
    for (int j = 0; j < HELD; ++j) factors[j] = j < taps ? weight[j] : 0.0f;
    fetch(rows, before, past, u, channels, tokens);
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < HELD; ++j)
            if (j < taps) total = fmaf(factors[j], rows.at[t + j][column], total);
#pragma unroll 1
        for (int j = HELD; j < taps; ++j) total = fmaf(weight[j], rows.at[t + j][column], total);
        // No later token looks at row t, and the rows to be kept begin at row `tokens`.
        rows.at[t][column] = silu(total);
    }
    if (!after) return;
#pragma unroll 1
    for (int j = 0; j < past; ++j) after[j * channels] = rows.at[tokens + j][column];
}

// One block a value head, from the projections to what the output's product reads. Per token:
//     M = fade · M;  delta = rate · (v - M'k);  M = M + k delta';  out = M'q
// Both sums over keys are made of M as it was, in one go: out = fade · M'q + (k'q) · delta.
//
// `u` [tokens, channels] holds q and k of all key heads, then v of all value heads. Without `weight`
// they are convolved already; with it [channels, taps], see `convolve`, the histories of 2 sides being
// [taps - 1, channels]. `key_head_of` names a head's key head k as k if this block writes the history
// of its q and k, as ~k if another does.
// `beta` and `alpha` [tokens, value_heads] are made to rate and decay with `dt` and `a` [value_heads];
// those null: they are rate and decay already.
// With `norm` [SIZE], out is out / sqrt(mean(out²) + norm_eps) · norm, times silu(gate) or, where
// `by_sigmoid`, sigmoid(gate), of [tokens, value_heads, SIZE] as out itself, and is written to `fixed`
// in fixed point too, unless that is null.
//
// The memory M [keys, columns] of a head lies as the threads hold it, four keys of a column side by
// side: a warp has 8 columns, and of each 16 keys a group of lanes has 4. So all of a column's keys
// are in one warp, and tokens follow each other without a barrier.
template <int SIZE>
DEVICE void delta_net(const float *u, const float *weight, float *histories, int taps,
                      const float *beta, const float *alpha, const float *dt, const float *a,
                      const i32 *key_head_of, float *memories, const i32 *side, const float *gate,
                      const float *norm, int by_sigmoid, float norm_eps, float *out, u8 *fixed,
                      int key_heads, int value_heads, int tokens, float eps) {
    constexpr int THREADS = SIZE * KEY_GROUPS, WARPS = THREADS / WARP, PARTS = SIZE / WARP;
    constexpr int CHUNKS = SIZE / (4 * KEY_GROUPS), Q = 0, K = SIZE, V = 2 * SIZE, Z = 3 * SIZE;
    __shared__ Rows<THREADS> rows;
    __shared__ float fades[MOST_TOKENS], rates[MOST_TOKENS], key_queries[MOST_TOKENS];
    const int head = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int now = *side, named = key_head_of[head];

    // Nothing waits for these loads before the last of the small ones has come.
    const u64 other = u64(value_heads) * SIZE * SIZE;
    float4 *memory_at = reinterpret_cast<float4 *>(memories + u64(head) * SIZE * SIZE);
    const float4 *before = memory_at + now * (other / 4) + threadIdx.x;
    float4 memory[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) memory[c] = before[c * THREADS];

    // Three quarters of the threads have a channel of q, k and v each, the last what the output of a
    // column is multiplied by.
    const int quarter = threadIdx.x / SIZE, i = threadIdx.x % SIZE, columns = value_heads * SIZE;
    if (quarter < 3) {
        const int key_head = named < 0 ? ~named : named;
        const int first = quarter < 2 ? quarter * key_heads + key_head : 2 * key_heads + head;
        const int c = first * SIZE + i, channels = 2 * key_heads * SIZE + columns;
        if (weight) {
            const int kept = (taps - 1) * channels;
            float *after = histories + (1 - now) * kept + c;
            convolve(rows, u + c, weight + c * taps, histories + now * kept + c,
                     quarter == 2 || named >= 0 ? after : nullptr, channels, taps, tokens);
        } else {
            fetch(rows, nullptr, 0, u + c, channels, tokens);
        }
    } else {
        if (i < tokens) {
            float fade = alpha[i * value_heads + head], rate = beta[i * value_heads + head];
            if (dt) fade = decay_of(fade + dt[head], a[head]), rate = sigmoid(rate);
            fades[i] = fade, rates[i] = rate;
        }
        if (norm) {
            const float scale = norm[i];
            fetch(rows, nullptr, 0, gate + head * SIZE + i, columns, tokens);
#pragma unroll 1
            for (int t = 0; t < tokens; ++t) {
                const float z = rows.at[t][threadIdx.x];
                rows.at[t][threadIdx.x] = scale * (by_sigmoid ? sigmoid(z) : silu(z));
            }
        }
    }
    __syncthreads();

#pragma unroll 1
    for (int t = warp; t < tokens; t += WARPS) {
        float *q = rows.at[t] + Q, *k = rows.at[t] + K;
        float q_squares = 0.0f, k_squares = 0.0f, both = 0.0f;
#pragma unroll
        for (int j = lane; j < SIZE; j += WARP) {
            q_squares = fmaf(q[j], q[j], q_squares);
            k_squares = fmaf(k[j], k[j], k_squares);
            both = fmaf(q[j], k[j], both);
        }
        q_squares = warp_sum(q_squares), k_squares = warp_sum(k_squares), both = warp_sum(both);
        const float q_factor = 1.0f / sqrtf(float(SIZE)) / sqrtf(q_squares + eps);
        const float k_factor = 1.0f / sqrtf(k_squares + eps);
#pragma unroll
        for (int j = lane; j < SIZE; j += WARP) q[j] *= q_factor, k[j] *= k_factor;
        if (lane == 0) key_queries[t] = both * q_factor * k_factor;
    }
    __syncthreads();

    const int group = lane / COLUMNS, column = warp * COLUMNS + lane % COLUMNS;
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
        const float4 *q = reinterpret_cast<const float4 *>(rows.at[t] + Q) + group;
        const float4 *k = reinterpret_cast<const float4 *>(rows.at[t] + K) + group;
        const float fade = fades[t], value = rows.at[t][V + column];
        float read = 0.0f, asked = 0.0f;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const float4 m = memory[c], key = k[c * KEY_GROUPS], query = q[c * KEY_GROUPS];
            read = fmaf(m.x, key.x, read), asked = fmaf(m.x, query.x, asked);
            read = fmaf(m.y, key.y, read), asked = fmaf(m.y, query.y, asked);
            read = fmaf(m.z, key.z, read), asked = fmaf(m.z, query.z, asked);
            read = fmaf(m.w, key.w, read), asked = fmaf(m.w, query.w, asked);
        }
#pragma unroll
        for (int distance = COLUMNS; distance < WARP; distance *= 2) {
            read += __shfl_xor_sync(ALL_LANES, read, distance);
            asked += __shfl_xor_sync(ALL_LANES, asked, distance);
        }
        const float delta = rates[t] * fmaf(-fade, read, value);
        // The output takes the place of the value, which only these lanes have read.
        __syncwarp();
        if (group == 0) rows.at[t][V + column] = fmaf(key_queries[t], delta, fade * asked);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const float4 key = k[c * KEY_GROUPS];
            memory[c].x = fmaf(key.x, delta, fade * memory[c].x);
            memory[c].y = fmaf(key.y, delta, fade * memory[c].y);
            memory[c].z = fmaf(key.z, delta, fade * memory[c].z);
            memory[c].w = fmaf(key.w, delta, fade * memory[c].w);
        }
    }
    __syncthreads();

    // The memory is stored last: the few warps that finish the output do not wait behind it.
#pragma unroll 1
    for (int part = warp; part < tokens * PARTS; part += WARPS) {
        const int t = part / PARTS, j = part % PARTS * WARP + lane;
        float value = rows.at[t][V + j];
        if (norm) {
            float squares = 0.0f;
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                const float each = rows.at[t][V + p * WARP + lane];
                squares = fmaf(each, each, squares);
            }
            const float factor = 1.0f / sqrtf(warp_sum(squares) / float(SIZE) + norm_eps);
            value = value * factor * rows.at[t][Z + j];
        }
        const int at = head * SIZE + j;
        out[t * columns + at] = value;
        if (fixed) write_fixed(fixed + t * fixed_row_bytes(columns), columns, at, value);
    }
    // The side is read again: to hold it for so long is a register too much.
    float4 *after = memory_at + (1 - *side) * (other / 4) + threadIdx.x;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) after[c * THREADS] = memory[c];
}

extern "C" {

// Two blocks of 512 threads fit onto a multiprocessor of 1,536, at 64 registers.
#define DELTA_NET(SIZE)                                                                           \
    __global__ void __launch_bounds__(SIZE *KEY_GROUPS, 1024 / (SIZE * KEY_GROUPS))               \
        delta_net_##SIZE(const float *u, const float *weight, float *histories, int taps,         \
                         const float *beta, const float *alpha, const float *dt, const float *a,  \
                         const i32 *key_head_of, float *memories, const i32 *side,                \
                         const float *gate, const float *norm, int by_sigmoid, float norm_eps,    \
                         float *out, u8 *fixed, int key_heads, int value_heads, int tokens,       \
                         float eps) {                                                             \
        take_turn();                                                                              \
        delta_net<SIZE>(u, weight, histories, taps, beta, alpha, dt, a, key_head_of, memories,    \
                        side, gate, norm, by_sigmoid, norm_eps, out, fixed, key_heads,            \
                        value_heads, tokens, eps);                                                \
    }
DELTA_NET(32)
DELTA_NET(64)
DELTA_NET(128)

// The convolution by itself, see `convolve`: out [tokens, channels], a thread a channel.
constexpr int CONVOLVING = 256;
__global__ void __launch_bounds__(CONVOLVING)
    causal_convolution(const float *u, const float *weight, float *histories, const i32 *side,
                       float *out, int channels, int taps, int tokens) {
    take_turn();
    __shared__ Rows<CONVOLVING> rows;
    const int c = blockIdx.x * CONVOLVING + threadIdx.x, kept = (taps - 1) * channels;
    if (c >= channels) return;
    const float *before = histories + *side * kept + c;
    float *after = histories + (1 - *side) * kept + c;
    convolve(rows, u + c, weight + c * taps, before, after, channels, taps, tokens);
    for (int t = 0; t < tokens; ++t) out[t * channels + c] = rows.at[t][threadIdx.x];
}

// In place: beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a); [tokens, heads].
__global__ void delta_gates(float *beta, float *alpha, const float *dt, const float *a, int heads,
                            int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    beta[i] = sigmoid(beta[i]);
    alpha[i] = decay_of(alpha[i] + dt[i % heads], a[i % heads]);
}
}
