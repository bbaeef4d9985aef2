// What is computed value by value or row by row: norms, rotations, gates, sums. float32.
#include "fixed.cuh"
#include "heads.cuh"

extern "C" {

// out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight, times silu(gate[r]) (kind 1) or
// sigmoid(gate[r]) (kind 2). One block a row of `width` values. Unless `fixed` is null, also in fixed
// point, in rows of `columns` values, a multiple of `width`; widths are multiples of 32 then. A thread
// loads all that its first HELD values need before it waits for the others' sums.
__global__ void __launch_bounds__(1024, 1)
    rms_norm(const float *x, const float *weight, const float *gate, float *out, u8 *fixed, int width,
             int columns, float eps, int kind) {
    take_turn();
    constexpr int HELD = 2;
    __shared__ float scratch[WARP];
    const u32 begin = blockIdx.x * width, within = begin % columns;
    const float *row = x + begin;
    u8 *fixed_row = fixed ? fixed + begin / columns * fixed_row_bytes(columns) : nullptr;
    float values[HELD], weights[HELD], gates[HELD], squares = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= width) continue;
        values[k] = row[i], weights[k] = weight[i];
        if (kind) gates[k] = gate[begin + i];
    }
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (threadIdx.x + k * blockDim.x < width) squares = fmaf(values[k], values[k], squares);
    for (int i = threadIdx.x + HELD * blockDim.x; i < width; i += blockDim.x)
        squares = fmaf(row[i], row[i], squares);
    const float factor = 1.0f / sqrtf(block_sum(squares, scratch) / float(width) + eps);
    const auto finish = [&](int i, float value, float scale, float gated) {
        value = value * factor * scale;
        if (kind == 1) value *= silu(gated);
        if (kind == 2) value *= sigmoid(gated);
        out[begin + i] = value;
        if (fixed_row) write_fixed(fixed_row, within + i, value);
    };
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (threadIdx.x + k * blockDim.x < width)
            finish(threadIdx.x + k * blockDim.x, values[k], weights[k], gates[k]);
    for (int i = threadIdx.x + HELD * blockDim.x; i < width; i += blockDim.x)
        finish(i, row[i], weight[i], kind ? gate[begin + i] : 0.0f);
}

// The same without a gate for rows of a multiple of 128 values, at most 8 for each thread; `fixed` is in
// rows of as many. A thread takes four side by side.
__global__ void __launch_bounds__(1024, 1)
    rms_norm_wide(const float *x, const float *weight, float *out, u8 *fixed, int width, float eps) {
    constexpr int HELD = 2;
    __shared__ float scratch[WARP];
    const u64 row = u64(blockIdx.x) * width;
    float4 values[HELD], weights[HELD];
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = 4 * (threadIdx.x + k * blockDim.x);
        if (i < width) weights[k] = *reinterpret_cast<const float4 *>(weight + i);
    }
    take_turn();
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = 4 * (threadIdx.x + k * blockDim.x);
        if (i >= width) continue;
        values[k] = *reinterpret_cast<const float4 *>(x + row + i);
        squares = fmaf(values[k].x, values[k].x, squares);
        squares = fmaf(values[k].y, values[k].y, squares);
        squares = fmaf(values[k].z, values[k].z, squares);
        squares = fmaf(values[k].w, values[k].w, squares);
    }
    const float factor = 1.0f / sqrtf(block_sum(squares, scratch) / float(width) + eps);
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int i = 4 * (threadIdx.x + k * blockDim.x);
        if (i >= width) continue;
        const float4 v = values[k], w = weights[k];
        const float4 normed = {v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z,
                               v.w * factor * w.w};
        *reinterpret_cast<float4 *>(out + row + i) = normed;
        if (fixed) write_fixed(fixed + blockIdx.x * fixed_row_bytes(width), i, normed);
    }
}

// x [tokens, columns] in fixed point; a thread a value, columns a multiple of 32.
__global__ void fix(const float *x, u8 *fixed, int columns, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    write_fixed(fixed + i / columns * fixed_row_bytes(columns), i % columns, x[i]);
}

// Queries and keys as attention takes them (heads.cuh). Block (h, t): query head h, or key head
// h - heads. With `gated` a row of queries holds for each head its values, then its gate's, which go to
// `gates`.
__global__ void prepare_heads(const float *queries, const float *keys, const float *query_norm,
                              const float *key_norm, const float *cos, const float *sin, float *q,
                              float *k, float *gates, int heads, int kv_heads, int size, int pairs,
                              int gated, float eps) {
    take_turn();
    __shared__ float head_values[1024], scratch[WARP];
    const int i = threadIdx.x, t = blockIdx.y;
    const bool query = int(blockIdx.x) < heads;
    const int head = query ? blockIdx.x : blockIdx.x - heads;
    const u64 row = u64(t) * (query ? heads : kv_heads) + head;
    const float *from = (query ? queries : keys) + row * (query && gated ? 2 * size : size);
    const float value = prepared_head(from, query ? query_norm : key_norm, cos + t * pairs,
                                      sin + t * pairs, size, pairs, eps, head_values, scratch);
    if (i >= size) return;
    (query ? q : k)[row * size + i] = value;
    if (query && gated) gates[row * size + i] = from[size + i];
}

// Cosine and sine of position · frequency, times `magnitude`, for tokens from *start on; the
// angle is made in float64, since a float32 product of a long position loses its fraction.
__global__ void rope_table(const i32 *start, const double *frequencies, float magnitude, float *cos,
                           float *sin, int pairs) {
    take_turn();
    const int i = threadIdx.x, t = blockIdx.x;
    if (i >= pairs) return;
    const double angle = double(*start + t) * frequencies[i];
    cos[t * pairs + i] = float(::cos(angle)) * magnitude;
    sin[t * pairs + i] = float(::sin(angle)) * magnitude;
}

// Rotate (v[i], v[i + pairs]) of x [tokens, heads, size] in place; one block a token and head.
__global__ void rotate_halves(float *x, const float *cos, const float *sin, int heads, int size,
                              int pairs) {
    take_turn();
    float *v = x + (u64(blockIdx.y) * heads + blockIdx.x) * size;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const float c = cos[blockIdx.y * pairs + i], s = sin[blockIdx.y * pairs + i];
        const float a = v[i], b = v[i + pairs];
        v[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        v[i + pairs] = __fadd_rn(__fmul_rn(a, s), __fmul_rn(b, c));
    }
}

__global__ void multiply_sigmoid(float *x, const float *gate, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] *= sigmoid(gate[i]);
}

__global__ void add(float *x, const float *y, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += y[i];
}

// x[t] += bias for every row of `width` values.
__global__ void add_bias(float *x, const float *bias, int width, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += bias[i % width];
}

// x[t] += y[t] · sigmoid(gate[t]).
__global__ void add_gated(float *x, const float *y, const float *gate, int width, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = fmaf(y[i], sigmoid(gate[i / width]), x[i]);
}

// hidden[s] = silu(gate[s]) · up[s], rows of `columns` values; unless `fixed` is null, columns are a
// multiple of 32.
__global__ void swiglu(const float *gate, const float *up, float *hidden, u8 *fixed, int columns,
                       int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float value = silu(gate[i]) * up[i];
    hidden[i] = value;
    if (fixed)
        write_fixed(fixed + i / columns * fixed_row_bytes(columns), i % columns, value);
}

__global__ void copy(const float *source, float *target, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = source[i];
}

// out[t] = x[t] then y[t]; widths n and m.
__global__ void concatenate(const float *x, const float *y, float *out, int n, int m, int count) {
    take_turn();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int t = i / (n + m), c = i % (n + m);
    out[i] = c < n ? x[t * n + c] : y[t * m + c - n];
}
}
