// What is computed value by value or row by row: norms, rotations, gates, sums. float32.
#include "bits.cuh"

extern "C" {

// out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight, times silu(gate[r]) (kind 1) or
// sigmoid(gate[r]) (kind 2). One block a row of `width` values.
__global__ void rms_norm(const float *x, const float *weight, const float *gate, float *out,
                         int width, float eps, int kind) {
    __shared__ float scratch[WARP];
    const float *row = x + u64(blockIdx.x) * width;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(row[i], row[i], squares);
    const float factor = 1.0f / sqrtf(block_sum(squares, scratch) / float(width) + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const u64 at = u64(blockIdx.x) * width + i;
        float value = row[i] * factor * weight[i];
        if (kind == 1) value *= silu(gate[at]);
        if (kind == 2) value *= sigmoid(gate[at]);
        out[at] = value;
    }
}

// Cosine and sine of position · frequency, times `magnitude`, for tokens from *start on; the
// angle is made in float64, since a float32 product of a long position loses its fraction.
__global__ void rope_table(const i32 *start, const double *frequencies, float magnitude, float *cos,
                           float *sin, int pairs) {
    const int i = threadIdx.x, t = blockIdx.x;
    if (i >= pairs) return;
    const double angle = double(*start + t) * frequencies[i];
    cos[t * pairs + i] = float(::cos(angle)) * magnitude;
    sin[t * pairs + i] = float(::sin(angle)) * magnitude;
}

// Rotate (v[i], v[i + pairs]) of x [tokens, heads, size] in place; one block a token and head.
__global__ void rotate_halves(float *x, const float *cos, const float *sin, int heads, int size,
                              int pairs) {
    float *v = x + (u64(blockIdx.y) * heads + blockIdx.x) * size;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const float c = cos[blockIdx.y * pairs + i], s = sin[blockIdx.y * pairs + i];
        const float a = v[i], b = v[i + pairs];
        v[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        v[i + pairs] = __fadd_rn(__fmul_rn(a, s), __fmul_rn(b, c));
    }
}

// [n, 2, size] → first and second [n, size]; `count` values of x.
__global__ void split_pairs(const float *x, float *first, float *second, int size, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int pair = i / (2 * size), within = i % (2 * size);
    (within < size ? first : second)[pair * size + within % size] = x[i];
}

__global__ void multiply_sigmoid(float *x, const float *gate, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] *= sigmoid(gate[i]);
}

__global__ void add(float *x, const float *y, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += y[i];
}

// x[t] += bias for every row of `width` values.
__global__ void add_bias(float *x, const float *bias, int width, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += bias[i % width];
}

// x[t] += y[t] · sigmoid(gate[t]).
__global__ void add_gated(float *x, const float *y, const float *gate, int width, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = fmaf(y[i], sigmoid(gate[i / width]), x[i]);
}

// hidden[s] = silu(gate[s]) · up[s].
__global__ void swiglu(const float *gate, const float *up, float *hidden, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) hidden[i] = silu(gate[i]) * up[i];
}

__global__ void copy(const float *source, float *target, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = source[i];
}

// out[t] = x[t] then y[t]; widths n and m.
__global__ void concatenate(const float *x, const float *y, float *out, int n, int m, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int t = i / (n + m), c = i % (n + m);
    out[i] = c < n ? x[t * n + c] : y[t * m + c - n];
}
}
