// Products of weights with the activations of a few tokens, straight from the weights' blocks;
// FORMAT is the weights' format.
//
// A block's threads are divided into groups of `width` lanes (a power of two, 4 at least), each of which
// computes ROWS rows: a lane takes parts of blocks, decodes them once and multiplies them with up to TOKENS
// rows of x. The sum over a row's parts has the same order for any number of tokens and rows, so a
// token's result has the same bits alone and in a window. Weights of floats are multiplied in
// float32; of all others the signed bytes of a group are multiplied with activations in fixed point
// (fixed.cuh), summed exactly, then scaled.
#include "fixed.cuh"
#include "formats.cuh"
#include "joins.cuh"

using Format = FORMAT;
constexpr u32 WARPS = 4, GATED_WARPS = 16, DOWN_WARPS = 8;
constexpr u32 MOST_USED = 32, LEAST_WIDTH = 4, LINE = 128;
constexpr int ROWS = 4;

// Blocks of WARPS warps for which a multiprocessor shall have registers: four leave 128 each. Lanes that
// look up grids wait for shared memory, too, and need another block to fill the time; four sums of many
// scales and offsets need more registers.
constexpr int BLOCKS = Format::TABLE >= 128 ? 5 : 4;
constexpr int FEW_BLOCKS = Format::OFFSETS && Format::GROUPS > 2 ? 3 : 4;

DEVICE u64 row_bytes(u32 columns) { return u64(columns / Format::BLOCK) * Format::BYTES; }

// Bytes of a row of x: fixed point, or float32.
DEVICE u64 x_row_bytes(u32 columns) {
    return Format::INTEGERS ? fixed_row_bytes(columns) : 4 * u64(columns);
}

// sums[r · TOKENS + t] += rows[r] · x[t] over part `part` of a row of floats.
template <class F, int TOKENS, int ROWS>
DEVICE void add_float_part(const u8 *const (&rows)[ROWS], const u8 *x, u32 tokens, u32 columns,
                           u32 part, float (&sums)[ROWS * TOKENS]) {
    float q[ROWS][F::VALUES];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) F::read(rows[r] + part * F::BYTES, 0, q[r]);
#pragma unroll
    for (u32 t = 0; t < TOKENS; ++t) {
        if (t && t >= tokens) break;
        const float *values = reinterpret_cast<const float *>(x) + t * columns + part * F::BLOCK;
#pragma unroll
        for (int i = 0; i < F::VALUES; i += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(values + i);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                sums[r * TOKENS + t] = fmaf(q[r][i], v.x, sums[r * TOKENS + t]);
                sums[r * TOKENS + t] = fmaf(q[r][i + 1], v.y, sums[r * TOKENS + t]);
                sums[r * TOKENS + t] = fmaf(q[r][i + 2], v.z, sums[r * TOKENS + t]);
                sums[r * TOKENS + t] = fmaf(q[r][i + 3], v.w, sums[r * TOKENS + t]);
            }
        }
    }
}

// N words side by side, N being 2 or 4, `at` a multiple of their size.
template <int N> DEVICE void load_run(const u8 *at, u32 *out) {
    if constexpr (N == 4) {
        const uint4 words = load128(at);
        out[0] = words.x, out[1] = words.y, out[2] = words.z, out[3] = words.w;
    } else {
        const uint2 words = load64(at);
        out[0] = words.x, out[1] = words.y;
    }
}

// The sum of RUN values, 8 or 16, from the sums of eight of them each.
template <int RUN> DEVICE float sum_of_run(const u8 *at) {
    if constexpr (RUN == 8) return __uint_as_float(load32(at));
    const uint2 sums = load64(at);
    return __uint_as_float(sums.x) + __uint_as_float(sums.y);
}

// Where in a row of fixed point a lane finds what it multiplies with: its runs, the sums of eight of
// them, and its copy of the scales.
template <class F> struct Places {
    u32 runs[F::VALUES / F::RUN], totals, units;
};
template <class F> DEVICE Places<F> places_from(u32 at) {
    Places<F> places;
#pragma unroll
    for (int k = 0; k < F::VALUES / F::RUN; ++k)
        places.runs[k] = kept(fixed_place(at + F::at(0, k * F::RUN)));
    places.totals = F::OFFSETS ? kept(fixed_sum_place(at)) : 0;
    places.units = kept(fixed_scale_place(at, threadIdx.x / 8 % 4));
    return places;
}

// What add_float_part does, over one part of a row of signed bytes: lane `lane` of block `block`; x
// begins where `places` count from.
template <class F, int TOKENS, int ROWS>
DEVICE void add_fixed_part(const u8 *const (&rows)[ROWS], const u8 *x, u32 tokens, u32 columns,
                           u32 block, u32 lane, const Places<F> &places,
                           float (&sums)[ROWS * TOKENS]) {
    constexpr int GROUPS = F::GROUPS, GROUP = F::VALUES / GROUPS, RUN = F::RUN, WORDS = RUN / 4;
    const u32 active = __activemask();
    u32 q[ROWS][F::VALUES / 4];
    float scale[ROWS][GROUPS], offset[ROWS][GROUPS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        F::read(rows[r] + block * F::BYTES, lane, q[r], scale[r], offset[r]);
#pragma unroll
    for (u32 t = 0; t < TOKENS; ++t) {
        if (t && t >= tokens) break;
        const u8 *row = x + t * fixed_row_bytes(columns);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            // Keeps the loads of later groups from being moved up here, into too many registers.
            if (TOKENS > 1 && F::OFFSETS && g) __syncwarp(active);
            int dots[ROWS][3] = {};
            float total = 0.0f;
#pragma unroll
            for (int i = g * GROUP; i < (g + 1) * GROUP; i += RUN) {
                const u8 *run = row + places.runs[i / RUN];
#pragma unroll
                for (int p = 0; p < 3; ++p) {
                    u32 v[WORDS];
                    load_run<WORDS>(run + p * FIXED_PLANE, v);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r)
#pragma unroll
                        for (int w = 0; w < WORDS; ++w)
                            dots[r][p] = add_dot(q[r][i / 4 + w], v[w], dots[r][p]);
                }
                if (F::OFFSETS) total += sum_of_run<RUN>(row + places.totals + F::at(0, i) / 2);
            }
            const u32 place = places.units + F::at(0, g * GROUP) / 32 * 4;
            const float unit = __uint_as_float(load32(row + place));
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float lower = float(256 * dots[r][1] + dots[r][2]);
                const float dot = unit * fmaf(65536.0f, float(dots[r][0]), lower);
                sums[r * TOKENS + t] = fmaf(scale[r][g], dot, sums[r * TOKENS + t]);
                if (F::OFFSETS) sums[r * TOKENS + t] = fmaf(offset[r][g], total, sums[r * TOKENS + t]);
            }
        }
    }
}

// sums[r · TOKENS + t] = rows[r] · x[t] over the parts of lane `lane` of a group of `width` lanes, a
// multiple of LANES, which take all parts at once or whole tiles of x: a lane has the same place in
// every block, and in every tile. Tokens beyond the last are left out.
template <class F, int TOKENS, int ROWS>
DEVICE void products(const u8 *const (&rows)[ROWS], const u8 *x, u32 tokens, u32 columns, u32 lane,
                     u32 width, float (&sums)[ROWS * TOKENS]) {
    const u32 blocks = columns / F::BLOCK, first = lane / F::LANES, step = width / F::LANES;
    if constexpr (F::INTEGERS) {
        constexpr u32 X_BYTES = F::BLOCK * FIXED_TILE_BYTES / FIXED_TILE;
        const u32 within = lane % F::LANES;
        const Places<F> places = places_from<F>(first * F::BLOCK + F::at(within, 0));
        for (u32 block = first; block < blocks; block += step)
            add_fixed_part<F, TOKENS, ROWS>(rows, x + (block - first) * X_BYTES, tokens, columns,
                                            block, within, places, sums);
    } else {
        for (u32 block = first; block < blocks; block += step)
            add_float_part<F, TOKENS, ROWS>(rows, x, tokens, columns, block, sums);
    }
}

// Up to four matrices [rows, columns] that are multiplied with the same x: matrix k has the rows
// from ends[k - 1] on of all, its result is outs[k] [tokens, its rows], `token` the first of them.
struct Matrices {
    const u8 *weights[4];
    float *outs[4];
    u32 ends[4];
    u32 token;
};

struct Matrix {
    const u8 *weights;
    float *out;
    u32 begin, rows;
};

// The matrix that row `row` of all belongs to; chosen without an index, which would put the
// arguments into local memory.
DEVICE Matrix matrix_of(const Matrices &all, u32 row) {
    Matrix found = {all.weights[0], all.outs[0], 0, all.ends[0]};
#pragma unroll
    for (int k = 1; k < 4; ++k)
        if (row >= all.ends[k - 1])
            found = {all.weights[k], all.outs[k], all.ends[k - 1], all.ends[k] - all.ends[k - 1]};
    return found;
}

// Whether a launch waits for memory more than for anything else: it reads little, or looks values up.
// Others are slowed down by asking twice for what they read.
DEVICE bool fetches_rows(const Matrices &all, u32 columns) {
    constexpr u64 LITTLE = 16 << 20;
    return OVERLAPS && (Format::TABLE || all.ends[3] * row_bytes(columns) <= LITTLE);
}

// Have the rows that this thread's group multiplies brought into the level-2 cache before its turn.
DEVICE void fetch_rows(const Matrices &all, u32 columns, u32 width) {
    const u32 group = blockIdx.x * (WARPS * WARP / width) + threadIdx.x / width;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const u32 row = min(group * ROWS + r, all.ends[3] - 1);
        const Matrix found = matrix_of(all, row);
        const u8 *begin = found.weights + (row - found.begin) * row_bytes(columns);
        for (u32 at = threadIdx.x % width * LINE; at < row_bytes(columns); at += width * LINE)
            fetch_early(begin + at);
    }
}

// y[t] = W x[t], then for the only matrix of a launch: times sigmoid(gate[t]), plus base[t], plus
// what is in y already with `add`; base has y's shape. A null gate or base is none.
template <int TOKENS>
DEVICE void multiply(const Matrices &all, const u8 *x, u32 columns, u32 tokens, u32 width,
                     const float *gate, const float *base, int add) {
    const u32 group = blockIdx.x * (WARPS * WARP / width) + threadIdx.x / width;
    const u32 first = group * ROWS, total = all.ends[3], lane = threadIdx.x % width;
    const u8 *rows[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const Matrix found = matrix_of(all, min(first + r, total - 1));
        const u64 row = min(first + r, total - 1) - found.begin;
        rows[r] = kept(found.weights + row * row_bytes(columns));
    }
    // What the sum needs besides is asked for first, if there is one token: nobody waits for it then.
    const u32 own = joined_piece(width);
    float opened = 0.0f, moved = 0.0f, before = 0.0f;
    if (TOKENS == 1 && own != NONE && first + own < total) {
        const u64 at = u64(all.token) * total + first + own;
        if (gate) opened = gate[all.token];
        if (base) moved = base[at];
        if (add) before = all.outs[0][at];
    }
    float sums[ROWS * TOKENS] = {};
    __shared__ float scratch[WARPS][ROWS * TOKENS];
    products<Format, TOKENS, ROWS>(rows, x, tokens, columns, lane, width, sums);
    const u32 piece = join_lanes(sums, width, scratch), row = first + piece;
    if (piece == NONE || row >= total) return;
    const Matrix found = matrix_of(all, row);
#pragma unroll
    for (u32 t = 0; t < TOKENS; ++t) {
        if (t >= tokens) continue;
        const u64 at = u64(all.token + t) * found.rows + row - found.begin;
        float value = sums[t], *target = found.out + at;
        if (gate) value = __fmul_rn(value, sigmoid(TOKENS == 1 ? opened : gate[all.token + t]));
        if (base) value = __fadd_rn(TOKENS == 1 ? moved : base[at], value);
        *target = add ? __fadd_rn(TOKENS == 1 ? before : *target, value) : value;
    }
}

// h[t] = silu(G x[t]) · (U x[t]) of at most TOKENS tokens, G and U [rows, columns], h [tokens, rows]
// in float32 and, unless that is null, in fixed point. A group, of a warp at most, takes two rows of
// each at once, or one where many scales need the registers; a block takes 32 rows, or more if it has
// groups for two each.
template <int TOKENS>
DEVICE void gated(const u8 *gate, const u8 *up, const u8 *x, float *h, u8 *fixed, u32 rows,
                  u32 columns, u32 tokens, u32 width) {
    constexpr int STEPS = TOKENS > 1 && Format::OFFSETS && Format::GROUPS > 2 ? 0 : 1;
    constexpr u32 PAIRS = 1 << STEPS;
    __shared__ float values[TOKENS][2 * GATED_WARPS * WARP / LEAST_WIDTH];
    const u32 groups = GATED_WARPS * WARP / width, held = max(2 * groups, u32(WARP));
    const u32 lane = threadIdx.x % width, begin = blockIdx.x * held;
#pragma unroll 1
    for (u32 within = threadIdx.x / width * PAIRS; within < held; within += PAIRS * groups) {
        const u8 *at[2 * PAIRS];
#pragma unroll
        for (u32 r = 0; r < 2 * PAIRS; ++r) {
            const u64 row = min(begin + within + r / 2, rows - 1);
            const u8 *address = (r % 2 ? up : gate) + row * row_bytes(columns);
            // Sums of several tokens need the registers more.
            at[r] = TOKENS == 1 ? kept(address) : address;
        }
        float sums[2 * PAIRS * TOKENS] = {};
        products<Format, TOKENS, 2 * PAIRS>(at, x, tokens, columns, lane, width, sums);
        join_warp<STEPS>(sums, width);
        const u32 share = width >> STEPS;
        if (lane % share) continue;
#pragma unroll
        for (int t = 0; t < TOKENS; ++t)
            values[t][within + lane / share] = silu(sums[t]) * sums[TOKENS + t];
    }
    __syncthreads();
    for (u32 piece = threadIdx.x / WARP; piece < tokens * (held / WARP); piece += GATED_WARPS) {
        const u32 t = piece % tokens, first = piece / tokens * WARP;
        const u32 place = first + threadIdx.x % WARP, row = begin + place;
        if (begin + first >= rows) continue;
        const float value = row < rows ? values[t][place] : 0.0f;
        if (row < rows) h[u64(t) * rows + row] = value;
        if (fixed) write_fixed(fixed + t * fixed_row_bytes(rows), row, value);
    }
    __syncthreads();
}

// The values of one part of a row, to their places in `out`.
template <class F> DEVICE void decode(const u8 *row, u32 part, float *out) {
    const u32 block = part / F::LANES, lane = part % F::LANES;
    const u8 *at = row + u64(block) * F::BYTES;
    float *target = out + block * F::BLOCK;
    if constexpr (F::INTEGERS) {
        u32 q[F::VALUES / 4];
        float scale[F::GROUPS], offset[F::GROUPS];
        F::read(at, lane, q, scale, offset);
#pragma unroll
        for (int i = 0; i < F::VALUES; ++i) {
            const int g = i / (F::VALUES / F::GROUPS);
            const u32 byte = (q[i / 4] >> (8 * (i % 4))) & 255u;
            float value = __fmul_rn(signed_byte_to_float(byte), scale[g]);
            if (F::OFFSETS) value = __fadd_rn(value, offset[g]);
            target[F::at(lane, i)] = value;
        }
    } else {
        float q[F::VALUES];
        F::read(at, lane, q);
#pragma unroll
        for (int i = 0; i < F::VALUES; ++i) target[F::at(lane, i)] = q[i];
    }
}

extern "C" {

// Up to eight tokens are taken TOKENS at a time: more would need too many registers.
#define MULTIPLY(TOKENS, AT_ONCE)                                                                 \
    __global__ void __launch_bounds__(WARPS *WARP, AT_ONCE) multiply_##TOKENS(                    \
        const u8 *w0, const u8 *w1, const u8 *w2, const u8 *w3, float *y0, float *y1, float *y2,  \
        float *y3, u32 e0, u32 e1, u32 e2, u32 e3, const u8 *x, u32 columns, u32 tokens,          \
        u32 width, const float *gate, const float *base, int add) {                               \
        prepare_table<Format>();                                                                  \
        Matrices all = {{w0, w1, w2, w3}, {y0, y1, y2, y3}, {e0, e1, e2, e3}, 0};                 \
        if (fetches_rows(all, columns)) fetch_rows(all, columns, width);                          \
        take_turn();                                                                              \
        for (; all.token < (TOKENS == 1 ? 1 : tokens); all.token += TOKENS)                       \
            multiply<TOKENS>(all, x + all.token * x_row_bytes(columns), columns,                  \
                             min(u32(TOKENS), tokens - all.token), width, gate, base, add);       \
    }
MULTIPLY(1, BLOCKS)
MULTIPLY(4, FEW_BLOCKS)

#define GATED(TOKENS)                                                                             \
    __global__ void __launch_bounds__(GATED_WARPS *WARP, 1) gated_##TOKENS(                       \
        const u8 *gate, const u8 *up, const u8 *x, float *h, u8 *fixed, u32 rows, u32 columns,    \
        u32 tokens, u32 width) {                                                                  \
        prepare_table<Format>();                                                                  \
        take_turn();                                                                              \
        for (u32 t = 0; t < (TOKENS == 1 ? 1 : tokens); t += TOKENS)                              \
            gated<TOKENS>(gate, up, x + t * x_row_bytes(columns), h + u64(t) * rows,              \
                          fixed ? fixed + t * fixed_row_bytes(rows) : nullptr, rows, columns,     \
                          min(u32(TOKENS), tokens - t), width);                                   \
    }
GATED(1)
GATED(4)

// Entry s (blockIdx.y) of tokens · used entries: h[s] = silu(G x) · (U x) of expert chosen[s] for
// token s / used. `places` [experts, parts] are the addresses of each expert's parts: gate, up
// and down, or gate and up in one, then down. h [entries, rows], and in fixed point if not null.
__global__ void __launch_bounds__(GATED_WARPS *WARP, 1)
    expert_gated(const u64 *places, u32 parts, const i32 *chosen, u32 used, const u8 *x, float *h,
                 u8 *fixed, u32 rows, u32 columns, u32 width) {
    prepare_table<Format>();
    take_turn();
    const u32 entry = blockIdx.y;
    const u64 *place = places + u64(chosen[entry]) * parts;
    const u8 *gate = reinterpret_cast<const u8 *>(place[0]);
    const u8 *up = parts == 3 ? reinterpret_cast<const u8 *>(place[1])
                              : gate + rows * row_bytes(columns);
    gated<1>(gate, up, x + entry / used * x_row_bytes(columns), h + u64(entry) * rows,
             fixed ? fixed + entry * fixed_row_bytes(rows) : nullptr, rows, columns, 1, width);
}

// Entry s: y[s] = W x[s / share] of part `part` of expert chosen[s]; y [entries, rows].
__global__ void __launch_bounds__(WARPS *WARP, BLOCKS)
    expert_multiply(const u64 *places, u32 parts, u32 part, const i32 *chosen, u32 share,
                    const u8 *x, float *y, u32 rows, u32 columns, u32 width) {
    prepare_table<Format>();
    take_turn();
    const u32 entry = blockIdx.y;
    const u8 *weight = reinterpret_cast<const u8 *>(places[u64(chosen[entry]) * parts + part]);
    const Matrices all = {{weight}, {y + u64(entry) * rows}, {rows, rows, rows, rows}, 0};
    multiply<1>(all, x + entry / share * x_row_bytes(columns), columns, 1, width, nullptr, nullptr,
                0);
}

// y[t] = sum over k of weights[t, k] · (D h[t · used + k]), D the down part of expert
// chosen[t, k], in the router's order, plus beside[t] · sigmoid(gate[t]) unless those are null, plus
// what is in y with `add`; token t is blockIdx.y. A block's warps deal the experts out among them;
// `width` is a warp's at most. y and `beside` [tokens, rows].
__global__ void __launch_bounds__(DOWN_WARPS *WARP, 2)
    expert_down(const u64 *places, u32 parts, const i32 *chosen, const float *weights, u32 used,
                const u8 *h, float *y, u32 rows, u32 columns, u32 width, const float *beside,
                const float *gate, int add) {
    prepare_table<Format>();
    take_turn();
    __shared__ float values[MOST_USED][ROWS * WARP / LEAST_WIDTH], shares[MOST_USED];
    const u32 lanes = threadIdx.x % WARP, held = WARP / width * ROWS, token = blockIdx.y;
    const u32 within = lanes / width * ROWS, begin = blockIdx.x * held;
    // What the sum needs besides is asked for first: nobody waits for it at the end.
    const u32 row = begin + threadIdx.x;
    const bool sums = threadIdx.x < held && row < rows;
    const u64 at = u64(token) * rows + row;
    const float other = sums && beside ? beside[at] : 0.0f, held_value = sums && add ? y[at] : 0.0f;
    const float opened = sums && beside ? gate[token] : 0.0f;
    if (threadIdx.x < used) shares[threadIdx.x] = weights[token * used + threadIdx.x];
#pragma unroll 1
    for (u32 k = threadIdx.x / WARP; k < used; k += DOWN_WARPS) {
        const u32 entry = token * used + k;
        const u8 *down =
            reinterpret_cast<const u8 *>(places[u64(chosen[entry]) * parts + parts - 1]);
        const u8 *at_row[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            at_row[r] = kept(down + min(begin + within + r, rows - 1) * row_bytes(columns));
        float dots[ROWS] = {};
        products<Format, 1, ROWS>(at_row, h + entry * x_row_bytes(columns), 1, columns,
                                  lanes % width, width, dots);
        join_warp<2>(dots, width);
        const u32 piece = own_piece(width);
        if (piece != NONE) values[k][within + piece] = dots[0];
    }
    __syncthreads();
    if (!sums) return;
    float total = 0.0f;
    for (u32 i = 0; i < used; ++i) total = fmaf(shares[i], values[i][threadIdx.x], total);
    if (beside) total = __fadd_rn(total, __fmul_rn(other, sigmoid(opened)));
    y[at] = add ? __fadd_rn(held_value, total) : total;
}

// out[i] = row ids[i] of a matrix, decoded bit for bit as the reference does; i is blockIdx.y.
__global__ void rows(const u8 *weight, const i32 *ids, float *out, u32 columns) {
    prepare_table<Format>();
    take_turn();
    const u32 part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= columns / Format::BLOCK * Format::LANES) return;
    decode<Format>(weight + u64(ids[blockIdx.y]) * row_bytes(columns), part,
                   out + u64(blockIdx.y) * columns);
}
}
