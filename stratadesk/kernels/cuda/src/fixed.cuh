// Activations in fixed point, as products with quantized weights read them.
//
// Each 32 values of a row share a scale, the largest magnitude / LARGEST_FIXED; a value is a whole
// number of scales, 65,536 · high + 256 · middle + low with all three in a signed byte, so that
// four products with signed bytes of weights are three instructions and sums of them are exact.
// The error of a value is at most 6.1e-8 of the largest of its 32, as in float32. A row of n values
// is n high bytes, n middle ones, n low ones, n / 32 float32 scales and n / 8 float32 sums of eight
// values each; rows begin at multiples of 16 bytes.
#pragma once
#include "bits.cuh"

// 127 · 65,536 less what the lower bytes may round up.
constexpr float LARGEST_FIXED = 8290304.0f;

DEVICE u64 fixed_row_bytes(u32 columns) {
    return (3 * columns + 4 * (columns / 32) + 4 * (columns / 8) + 15) / 16 * 16;
}

// Where the scales and the sums of a row begin.
DEVICE const float *fixed_scales(const u8 *row, u32 columns) {
    return reinterpret_cast<const float *>(row + 3 * columns);
}
DEVICE const float *fixed_sums(const u8 *row, u32 columns) {
    return fixed_scales(row, columns) + columns / 32;
}

// Write value `at` of a fixed-point row; the 32 lanes hold 32 values side by side, whose first is
// a multiple of 32.
DEVICE void write_fixed(u8 *row, u32 columns, u32 at, float value) {
    const float scale = warp_max(fabsf(value)) / LARGEST_FIXED;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const int whole = __float2int_rn(fminf(fmaxf(value * inverse, -LARGEST_FIXED), LARGEST_FIXED));
    const int upper = (whole + 128) >> 8, high = (upper + 128) >> 8;
    row[at] = u8(high), row[columns + at] = u8(upper - 256 * high);
    row[2 * columns + at] = u8(whole - 256 * upper);
    float sum = value;
#pragma unroll
    for (int distance = 4; distance; distance >>= 1)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    float *scales = reinterpret_cast<float *>(row + 3 * columns);
    if (at % 32 == 0) scales[at / 32] = scale;
    if (at % 8 == 0) scales[columns / 32 + at / 8] = sum;
}
