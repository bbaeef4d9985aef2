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

// What a delta net is computed from and what it makes; [..] are shapes, row-major.
struct Net {
    // q and k of all key heads, then v of all value heads: [tokens, channels]. Convolved already where
    // there is no `weight` [channels, taps]; else see `convolve`, with histories of two sides
    // [taps - 1, channels].
    const float *u, *weight;
    float *histories;
    int taps;
    // [tokens, value_heads]: rate and decay, or what they are made of with `dt` and `a` [value_heads].
    const float *beta, *alpha, *dt, *a;
    // A value head's key head k, as k if its block writes the history of k's channels, else as ~k.
    const i32 *key_head_of;
    // Memories of two sides; see `delta_net`.
    float *memories;
    const i32 *side;
    // With `norm` [SIZE], out is out / sqrt(mean(out²) + norm_eps) · norm, times silu(gate) or, where
    // `by_sigmoid`, sigmoid(gate).
    const float *gate, *norm;
    int by_sigmoid;
    float norm_eps;
    // As `gate` [tokens, value_heads, SIZE]; in fixed point too, unless that is null.
    float *out;
    u8 *fixed;
    int key_heads, value_heads, tokens;
    float eps;
};

// What a token does to the memory of a head, and k'q.
struct Steps {
    float fade[MOST_TOKENS], rate[MOST_TOKENS], key_query[MOST_TOKENS];
};

// Columns of `Rows`: q, k and v of a head, the last of which its output takes the place of, and what the
// output is multiplied by.
template <int SIZE> struct Columns {
    static constexpr int Q = 0, K = SIZE, V = 2 * SIZE, SCALE = 3 * SIZE, ALL = 4 * SIZE;
};

// What a block takes from the step before: which side is read, its entry of `key_head_of`, and the
// memory M [keys, columns] of its head. That lies as the threads hold it, four keys of a column side by
// side: a warp has 8 columns, and of each 16 keys a group of lanes has 4. So all of a column's keys
// are in one warp, and tokens follow each other without a barrier.
template <int SIZE> struct State {
    static constexpr int CHUNKS = SIZE / (4 * KEY_GROUPS);
    int side, named;
    float4 memory[CHUNKS];
};

// Where the thread's part of its head's memory begins, on one side.
template <int SIZE> DEVICE float4 *memory_of(const Net &net, int side) {
    constexpr u64 VALUES = SIZE * SIZE;
    float *head = net.memories + (u64(side) * net.value_heads + blockIdx.x) * VALUES;
    return reinterpret_cast<float4 *>(head) + threadIdx.x;
}

// The thread's channel of q, k or v.
template <int SIZE> DEVICE int channel_of(const Net &net, int named) {
    const int quarter = threadIdx.x / SIZE, key_head = named < 0 ? ~named : named;
    const int head = quarter < 2 ? quarter * net.key_heads + key_head : 2 * net.key_heads + blockIdx.x;
    return head * SIZE + threadIdx.x % SIZE;
}

DEVICE void fetch_early(const float *at) { fetch_early(reinterpret_cast<const u8 *>(at)); }

// Asks for all that the kernel directly before this one does not write. The memory is asked for first
// and used last: its way here hides the inputs'.
template <int SIZE> DEVICE void load_state(const Net &net, State<SIZE> &state) {
    state.side = *net.side, state.named = net.key_head_of[blockIdx.x];
    const float4 *from = memory_of<SIZE>(net, state.side);
#pragma unroll
    for (int c = 0; c < State<SIZE>::CHUNKS; ++c) state.memory[c] = from[c * Columns<SIZE>::ALL];
    if constexpr (OVERLAPS) {
        const int i = threadIdx.x % SIZE;
        if (threadIdx.x < 3 * SIZE && net.weight) {
            const int c = channel_of<SIZE>(net, state.named), past = net.taps - 1;
            const int channels = (2 * net.key_heads + net.value_heads) * SIZE;
            fetch_early(net.weight + c * net.taps);
            for (int j = 0; j < past; ++j)
                fetch_early(net.histories + (state.side * past + j) * channels + c);
        } else if (threadIdx.x >= 3 * SIZE && net.norm) {
            fetch_early(net.norm + i);
        }
    }
}

// Fills a row for each token, a thread a column, and fades and rates.
template <int SIZE>
DEVICE void take_inputs(const Net &net, Rows<4 * SIZE> &rows, Steps &steps, int now, int named) {
    const int head = blockIdx.x, quarter = threadIdx.x / SIZE, i = threadIdx.x % SIZE;
    const int heads = net.value_heads, tokens = net.tokens;
    if (quarter < 3) {
        const int c = channel_of<SIZE>(net, named), channels = (2 * net.key_heads + heads) * SIZE;
        if (!net.weight) return fetch(rows, nullptr, 0, net.u + c, channels, tokens);
        const int held = (net.taps - 1) * channels;
        float *after = net.histories + (1 - now) * held + c;
        return convolve(rows, net.u + c, net.weight + c * net.taps, net.histories + now * held + c,
                        quarter == 2 || named >= 0 ? after : nullptr, channels, net.taps, tokens);
    }
    float fade = 0.0f, rate = 0.0f, shift = 0.0f, slope = 0.0f;
    if (i < tokens) fade = net.alpha[i * heads + head], rate = net.beta[i * heads + head];
    if (net.dt) shift = net.dt[head], slope = net.a[head];
    if (net.norm) {
        const float scale = net.norm[i];
        fetch(rows, nullptr, 0, net.gate + head * SIZE + i, heads * SIZE, tokens);
#pragma unroll 1
        for (int t = 0; t < tokens; ++t) {
            const float z = rows.at[t][threadIdx.x];
            rows.at[t][threadIdx.x] = scale * (net.by_sigmoid ? sigmoid(z) : silu(z));
        }
    }
    if (net.dt) fade = decay_of(fade + shift, slope), rate = sigmoid(rate);
    if (i < tokens) steps.fade[i] = fade, steps.rate[i] = rate;
}

// Gives q and k unit length, and q a factor of 1 / sqrt(SIZE); a warp a token.
template <int SIZE>
DEVICE void normalise(Rows<4 * SIZE> &rows, Steps &steps, int tokens, float eps) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int t = threadIdx.x / WARP; t < tokens; t += 4 * SIZE / WARP) {
        float *q = rows.at[t] + Columns<SIZE>::Q, *k = rows.at[t] + Columns<SIZE>::K;
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
        if (lane == 0) steps.key_query[t] = both * q_factor * k_factor;
    }
}

// Goes through the tokens. Per token, M being the memory of a head:
//     M = fade · M;  delta = rate · (v - M'k);  M = M + k delta';  out = M'q
// Both sums over keys are made of M as it was, in one go: out = fade · M'q + (k'q) · delta.
template <int SIZE>
DEVICE void apply_rule(State<SIZE> &state, Rows<4 * SIZE> &rows, const Steps &steps, int tokens) {
    constexpr int CHUNKS = State<SIZE>::CHUNKS;
    float4(&memory)[CHUNKS] = state.memory;
    const int lane = threadIdx.x % WARP, group = lane / COLUMNS;
    const int column = Columns<SIZE>::V + threadIdx.x / WARP * COLUMNS + lane % COLUMNS;
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
        // Not t itself: the compiler would carry two more addresses along, for which there are no
        // registers.
        const int at = kept(t);
        const float4 *q = reinterpret_cast<const float4 *>(rows.at[at] + Columns<SIZE>::Q) + group;
        const float4 *k = q + (Columns<SIZE>::K - Columns<SIZE>::Q) / 4;
        const float fade = steps.fade[at], value = rows.at[at][column];
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
        const float delta = steps.rate[at] * fmaf(-fade, read, value);
        // The output takes the place of the value, which only these lanes have read.
        __syncwarp();
        if (group == 0) rows.at[at][column] = fmaf(steps.key_query[at], delta, fade * asked);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const float4 key = k[c * KEY_GROUPS];
            float4 &m = memory[c];
            m.x = fmaf(fade, m.x, key.x * delta), m.y = fmaf(fade, m.y, key.y * delta);
            m.z = fmaf(fade, m.z, key.z * delta), m.w = fmaf(fade, m.w, key.w * delta);
        }
    }
}

// Norms, gates and writes what the tokens' rows hold in place of v; a warp for 32 columns of a token.
template <int SIZE> DEVICE void write_outputs(const Net &net, const Rows<4 * SIZE> &rows) {
    constexpr int PARTS = SIZE / WARP;
    const int lane = threadIdx.x % WARP, columns = net.value_heads * SIZE;
#pragma unroll 1
    for (int part = threadIdx.x / WARP; part < net.tokens * PARTS; part += 4 * SIZE / WARP) {
        const int t = part / PARTS, j = part % PARTS * WARP + lane, at = blockIdx.x * SIZE + j;
        const float *output = rows.at[t] + Columns<SIZE>::V;
        float value = output[j];
        if (net.norm) {
            float squares = 0.0f;
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                const float each = output[p * WARP + lane];
                squares = fmaf(each, each, squares);
            }
            const float factor = 1.0f / sqrtf(warp_sum(squares) / float(SIZE) + net.norm_eps);
            value = value * factor * rows.at[t][Columns<SIZE>::SCALE + j];
        }
        net.out[t * columns + at] = value;
        if (net.fixed)
            write_fixed(net.fixed + t * fixed_row_bytes(columns), at, value);
    }
}

// One block a value head, from the projections to what the output's product reads.
template <int SIZE> DEVICE void delta_net(const Net &net, State<SIZE> &state) {
    static_assert(KEY_GROUPS * SIZE == Columns<SIZE>::ALL, "a thread takes a column of the inputs");
    __shared__ Rows<Columns<SIZE>::ALL> rows;
    __shared__ Steps steps;
    take_inputs<SIZE>(net, rows, steps, state.side, state.named);
    __syncthreads();
    normalise<SIZE>(rows, steps, net.tokens, net.eps);
    __syncthreads();
    apply_rule<SIZE>(state, rows, steps, net.tokens);
    __syncthreads();
    write_outputs<SIZE>(net, rows);
    // Stored last: the few warps that write the outputs do not wait behind it. The side is read again,
    // since to hold it for so long is a register too much.
    float4 *after = memory_of<SIZE>(net, 1 - *net.side);
#pragma unroll
    for (int c = 0; c < State<SIZE>::CHUNKS; ++c) after[c * Columns<SIZE>::ALL] = state.memory[c];
}

extern "C" {

// Two blocks of 512 threads fit onto a multiprocessor of 1,536, at 64 registers.
#define DELTA_NET(SIZE)                                                                           \
    __global__ void __launch_bounds__(4 * SIZE, 256 / SIZE) delta_net_##SIZE(                     \
        const float *u, const float *weight, float *histories, int taps, const float *beta,       \
        const float *alpha, const float *dt, const float *a, const i32 *key_head_of,              \
        float *memories, const i32 *side, const float *gate, const float *norm, int by_sigmoid,   \
        float norm_eps, float *out, u8 *fixed, int key_heads, int value_heads, int tokens,        \
        float eps) {                                                                              \
        const Net net = {u, weight, histories, taps, beta, alpha, dt, a, key_head_of, memories,   \
                         side, gate, norm, by_sigmoid, norm_eps, out, fixed, key_heads,           \
                         value_heads, tokens, eps};                                               \
        State<SIZE> state;                                                                        \
        load_state(net, state);                                                                   \
        take_turn();                                                                              \
        delta_net(net, state);                                                                    \
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
    const int c = blockIdx.x * CONVOLVING + threadIdx.x, held = (taps - 1) * channels;
    if (c >= channels) return;
    const float *before = histories + *side * held + c;
    float *after = histories + (1 - *side) * held + c;
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
