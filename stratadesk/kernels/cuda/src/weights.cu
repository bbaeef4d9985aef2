// Products of a weight with the activations of a few tokens, straight from its blocks; FORMAT is
// the weight's format.
//
// A warp computes ROWS rows: each lane takes parts of blocks, decodes them once and multiplies
// them with up to TOKENS rows of x. The sum over a row's parts has the same order for any number
// of tokens and rows, so a token's result has the same bits alone and in a window. float32
// throughout: a group of values is summed first, then scaled.
#include "formats.cuh"

constexpr int WARPS = 4;
using Format = FORMAT;

DEVICE u64 row_bytes(int columns) { return u64(columns / Format::BLOCK) * Format::BYTES; }

// sums[r][t] += rows[r] · x[t]; x is [tokens, columns], tokens beyond the last read the last one.
template <int TOKENS, int ROWS>
DEVICE void add_products(const u8 *const (&rows)[ROWS], const float *x, int tokens, int columns,
                         float (&sums)[ROWS][TOKENS]) {
    constexpr int GROUP = Format::VALUES / Format::GROUPS;
    const int parts = columns / Format::BLOCK * Format::LANES;
    for (int part = threadIdx.x % WARP; part < parts; part += WARP) {
        const int block = part / Format::LANES, lane = part % Format::LANES;
        const u32 active = __activemask();
        float q[ROWS][Format::VALUES], scale[ROWS][Format::GROUPS], offset[ROWS][Format::GROUPS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            Format::read(rows[r] + u64(block) * Format::BYTES, lane, q[r], scale[r], offset[r]);
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) {
            const float *values = x + u64(min(t, tokens - 1)) * columns + block * Format::BLOCK;
#pragma unroll
            for (int g = 0; g < Format::GROUPS; ++g) {
                float dots[ROWS] = {}, total = 0.0f;
#pragma unroll
                for (int i = g * GROUP; i < (g + 1) * GROUP; i += RUN) {
                    // Keeps later loads from being moved up here, into too many registers.
                    if (TOKENS > 4 && i % 8 == 0) __syncwarp(active);
                    const float *run = values + Format::at(lane, i);
                    const float4 v = *reinterpret_cast<const float4 *>(run);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        dots[r] = fmaf(q[r][i], v.x, dots[r]);
                        dots[r] = fmaf(q[r][i + 1], v.y, dots[r]);
                        dots[r] = fmaf(q[r][i + 2], v.z, dots[r]);
                        dots[r] = fmaf(q[r][i + 3], v.w, dots[r]);
                    }
                    if (Format::OFFSETS) total += (v.x + v.y) + (v.z + v.w);
                }
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    sums[r][t] = fmaf(scale[r][g], dots[r], sums[r][t]);
                    if (Format::OFFSETS) sums[r][t] = fmaf(offset[r][g], total, sums[r][t]);
                }
            }
        }
    }
}

// y[t] = W x[t], or y[t] += W x[t] with `add`; W [rows, columns], y [tokens, rows].
template <int TOKENS, int ROWS>
DEVICE void multiply(const u8 *weight, const float *x, float *y, int rows, int columns, int tokens,
                     int add) {
    const int first = (blockIdx.x * WARPS + threadIdx.x / WARP) * ROWS;
    if (first >= rows) return;
    const u8 *at[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) at[r] = weight + min(first + r, rows - 1) * row_bytes(columns);
    float sums[ROWS][TOKENS] = {};
    add_products<TOKENS, ROWS>(at, x, tokens, columns, sums);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) {
            const float sum = warp_sum(sums[r][t]);
            const int lane = threadIdx.x % WARP;
            if (lane == 0 && t < tokens && first + r < rows) {
                float *target = y + u64(t) * rows + first + r;
                *target = add ? *target + sum : sum;
            }
        }
}

// h[t] = silu(G x[t]) · (U x[t]); G and U [rows, columns], h [tokens, rows].
template <int TOKENS>
DEVICE void gated(const u8 *gate, const u8 *up, const float *x, float *h, int rows, int columns,
                  int tokens) {
    const int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= rows) return;
    const u8 *at[2] = {gate + row * row_bytes(columns), up + row * row_bytes(columns)};
    float sums[2][TOKENS] = {};
    add_products<TOKENS, 2>(at, x, tokens, columns, sums);
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
        const float g = warp_sum(sums[0][t]), u = warp_sum(sums[1][t]);
        if (threadIdx.x % WARP == 0 && t < tokens) h[u64(t) * rows + row] = silu(g) * u;
    }
}

extern "C" {

#define MULTIPLY(TOKENS, ROWS, BLOCKS)                                                               \
    __global__ void __launch_bounds__(WARPS *WARP, BLOCKS) multiply_##TOKENS(                             \
        const u8 *weight, const float *x, float *y, int rows, int columns, int tokens, int add) { \
        multiply<TOKENS, ROWS>(weight, x, y, rows, columns, tokens, add);                         \
    }
MULTIPLY(1, 2, 4)
MULTIPLY(4, 2, 3)
MULTIPLY(8, 1, 2)

#define GATED(TOKENS, BLOCKS)                                                                    \
    __global__ void __launch_bounds__(WARPS *WARP, BLOCKS) gated_##TOKENS(                               \
        const u8 *gate, const u8 *up, const float *x, float *h, int rows, int columns,           \
        int tokens) {                                                                            \
        gated<TOKENS>(gate, up, x, h, rows, columns, tokens);                                    \
    }
GATED(1, 4)
GATED(4, 3)
GATED(8, 2)

// Entry s (blockIdx.y) of tokens · used entries: h[s] = silu(G x) · (U x) of expert chosen[s] for
// token s / used. `places` [experts, parts] are the addresses of each expert's parts: gate, up
// and down, or gate and up in one, then down. h [entries, rows].
__global__ void __launch_bounds__(WARPS *WARP, 4)
    expert_gated(const u64 *places, int parts, const i32 *chosen, int used, const float *x,
                 float *h, int rows, int columns) {
    const int entry = blockIdx.y;
    const u64 *place = places + u64(chosen[entry]) * parts;
    const u8 *gate = reinterpret_cast<const u8 *>(place[0]);
    const u8 *up = parts == 3 ? reinterpret_cast<const u8 *>(place[1])
                              : gate + rows * row_bytes(columns);
    gated<1>(gate, up, x + u64(entry / used) * columns, h + u64(entry) * rows, rows, columns, 1);
}

// Entry s: y[s] = W x[s / share] of part `part` of expert chosen[s]; y [entries, rows].
__global__ void __launch_bounds__(WARPS *WARP, 4)
    expert_multiply(const u64 *places, int parts, int part, const i32 *chosen, int share,
                    const float *x, float *y, int rows, int columns) {
    const int entry = blockIdx.y;
    const u8 *weight = reinterpret_cast<const u8 *>(places[u64(chosen[entry]) * parts + part]);
    multiply<1, 2>(weight, x + u64(entry / share) * columns, y + u64(entry) * rows, rows, columns,
                   1, 0);
}

// y[t] = sum over k of weights[t, k] · (D h[t · used + k]), D the down part of expert
// chosen[t, k], in the router's order; token t is blockIdx.y. y [tokens, rows].
__global__ void __launch_bounds__(WARPS *WARP, 4)
    expert_down(const u64 *places, int parts, const i32 *chosen, const float *weights, int used,
                const float *h, float *y, int rows, int columns) {
    constexpr int ROWS = 2;
    const int token = blockIdx.y, first = (blockIdx.x * WARPS + threadIdx.x / WARP) * ROWS;
    if (first >= rows) return;
    float totals[ROWS] = {};
    for (int k = token * used; k < (token + 1) * used; ++k) {
        const u8 *down = reinterpret_cast<const u8 *>(places[u64(chosen[k]) * parts + parts - 1]);
        const u8 *at[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) at[r] = down + min(first + r, rows - 1) * row_bytes(columns);
        float sums[ROWS][1] = {};
        add_products<1, ROWS>(at, h + u64(k) * columns, 1, columns, sums);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            totals[r] = fmaf(weights[k], warp_sum(sums[r][0]), totals[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (threadIdx.x % WARP == 0 && first + r < rows)
            y[u64(token) * rows + first + r] = totals[r];
}

// out[i] = row ids[i] of a matrix, decoded bit for bit as the reference does; i is blockIdx.y.
__global__ void rows(const u8 *weight, const i32 *ids, float *out, int columns) {
    const u8 *row = weight + u64(ids[blockIdx.y]) * row_bytes(columns);
    const int part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= columns / Format::BLOCK * Format::LANES) return;
    const int block = part / Format::LANES, lane = part % Format::LANES;
    float q[Format::VALUES], scale[Format::GROUPS], offset[Format::GROUPS];
    Format::read(row + u64(block) * Format::BYTES, lane, q, scale, offset);
    float *target = out + u64(blockIdx.y) * columns + block * Format::BLOCK;
#pragma unroll
    for (int i = 0; i < Format::VALUES; ++i) {
        const int g = i / (Format::VALUES / Format::GROUPS);
        float value = __fmul_rn(q[i], scale[g]);
        if (Format::OFFSETS) value = __fadd_rn(value, offset[g]);
        target[Format::at(lane, i)] = value;
    }
}
}
