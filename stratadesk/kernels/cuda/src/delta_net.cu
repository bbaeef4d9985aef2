// The gated delta net for a few tokens. Its state is kept twice: a step reads the side *side
// (0 or 1) and writes the other, so that a step that is not committed has changed nothing.
#include "bits.cuh"

constexpr int COLUMNS = WARP, KEY_GROUPS = 8, MOST_TAPS = 8;

// Exp(softplus(x) · a): what a state keeps of itself.
DEVICE float decay_of(float x, float a) {
    return expf((x > 20.0f ? x : logf(1.0f + expf(x))) * a);
}

// `dt` and `a` [value_heads]: rate and decay are made from `beta` and `alpha` [tokens, value_heads]
// here; null: they are rate and decay already.
// Row `key`, column `column` of the memory [keys, columns] of one head, of 2 sides.
template <int SIZE>
DEVICE void delta_rule(const float *convolved, const float *beta, const float *alpha,
                       const float *dt, const float *a, const i32 *key_head_of, float *memories,
                       const i32 *side, float *out, int key_heads, int value_heads, int tokens,
                       float eps) {
    constexpr int KEYS = SIZE / KEY_GROUPS;
    const int head = blockIdx.y, column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const int group = threadIdx.x / COLUMNS;
    const int channels = (2 * key_heads + value_heads) * SIZE;
    const float *before = memories + (u64(*side) * value_heads + head) * SIZE * SIZE;
    float *after = memories + (u64(1 - *side) * value_heads + head) * SIZE * SIZE;

    float memory[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; ++i) memory[i] = before[(group * KEYS + i) * SIZE + column];

    __shared__ float q[SIZE], k[SIZE], sums[KEY_GROUPS][COLUMNS], scratch[WARP];
    const float q_scale = 1.0f / sqrtf(float(SIZE));
    for (int t = 0; t < tokens; ++t) {
        const float *row = convolved + u64(t) * channels;
        const float *q_row = row + key_head_of[head] * SIZE, *k_row = q_row + key_heads * SIZE;
        float q_squares = 0.0f, k_squares = 0.0f;
        for (int i = threadIdx.x; i < SIZE; i += blockDim.x) {
            q_squares = fmaf(q_row[i], q_row[i], q_squares);
            k_squares = fmaf(k_row[i], k_row[i], k_squares);
        }
        const float q_factor = q_scale / sqrtf(block_sum(q_squares, scratch) + eps);
        const float k_factor = 1.0f / sqrtf(block_sum(k_squares, scratch) + eps);
        for (int i = threadIdx.x; i < SIZE; i += blockDim.x)
            q[i] = q_row[i] * q_factor, k[i] = k_row[i] * k_factor;
        __syncthreads();

        float fade = alpha[t * value_heads + head], rate = beta[t * value_heads + head];
        if (dt) fade = decay_of(fade + dt[head], a[head]), rate = sigmoid(rate);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KEYS; ++i) {
            memory[i] *= fade;
            sum = fmaf(memory[i], k[group * KEYS + i], sum);
        }
        sums[group][threadIdx.x % COLUMNS] = sum;
        __syncthreads();
        float read = 0.0f;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; ++g) read += sums[g][threadIdx.x % COLUMNS];
        const float value = row[2 * key_heads * SIZE + head * SIZE + column];
        const float delta = rate * (value - read);
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KEYS; ++i) {
            memory[i] = fmaf(k[group * KEYS + i], delta, memory[i]);
            sum = fmaf(memory[i], q[group * KEYS + i], sum);
        }
        __syncthreads();
        sums[group][threadIdx.x % COLUMNS] = sum;
        __syncthreads();
        if (group == 0) {
            float total = 0.0f;
#pragma unroll
            for (int g = 0; g < KEY_GROUPS; ++g) total += sums[g][threadIdx.x];
            out[(u64(t) * value_heads + head) * SIZE + column] = total;
        }
    }
#pragma unroll
    for (int i = 0; i < KEYS; ++i) after[(group * KEYS + i) * SIZE + column] = memory[i];
}

extern "C" {

#define DELTA_RULE(SIZE)                                                                          \
    __global__ void __launch_bounds__(COLUMNS *KEY_GROUPS) delta_rule_##SIZE(                     \
        const float *convolved, const float *beta, const float *alpha, const float *dt,           \
        const float *a, const i32 *key_head_of, float *memories, const i32 *side, float *out,     \
        int key_heads, int value_heads, int tokens, float eps) {                                  \
        take_turn();                                                                              \
        delta_rule<SIZE>(convolved, beta, alpha, dt, a, key_head_of, memories, side, out,         \
                         key_heads, value_heads, tokens, eps);                                    \
    }
DELTA_RULE(32)
DELTA_RULE(64)
DELTA_RULE(128)

// out[t] = silu(sum over j of weight[:, j] · u[t - (taps - 1) + j]), depthwise; u and out are
// [tokens, channels], weight [channels, taps]. The two histories [taps - 1, channels] hold the
// rows before the first, oldest first: read from side *side, the last rows written to the other.
__global__ void causal_convolution(const float *u, const float *weight, float *histories,
                                   const i32 *side, float *out, int channels, int taps,
                                   int tokens) {
    take_turn();
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    const int past = taps - 1;
    const float *before = histories + u64(*side) * past * channels;
    float *after = histories + u64(1 - *side) * past * channels;
    float seen[MOST_TAPS], factors[MOST_TAPS];
#pragma unroll
    for (int j = 0; j < MOST_TAPS; ++j) {
        seen[j] = j < past ? before[j * channels + c] : 0.0f;
        factors[j] = j < taps ? weight[c * taps + j] : 0.0f;
    }
    for (int t = 0; t < tokens; ++t) {
        const float value = u[u64(t) * channels + c];
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < MOST_TAPS; ++j) {
            if (j == past) seen[j] = value;
            if (j < taps) total = fmaf(factors[j], seen[j], total);
        }
        out[u64(t) * channels + c] = silu(total);
#pragma unroll
        for (int j = 0; j + 1 < MOST_TAPS; ++j)
            if (j < past) seen[j] = seen[j + 1];
    }
#pragma unroll
    for (int j = 0; j < MOST_TAPS; ++j)
        if (j < past) after[j * channels + c] = seen[j];
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
