// Activations in fixed point, as products with quantized weights read them.
//
// Each 32 values of a row share a scale, the largest magnitude / LARGEST_FIXED; a value is a whole
// number of scales, 65,536 · high + 256 · middle + low with all three in a signed byte, so that
// four products with signed bytes of weights are three instructions and sums of them are exact.
// The error of a value is at most 6.1e-8 of the largest of its 32, as in float32.
//
// A row is a tile of 1,024 bytes for each 256 values, the last of which need not be full:
//   high bytes   128 of the first halves of the eight 32s, then 128 of the second halves
//   middle, low  the same
//   sums         32 float32, each of eight values
//   scales       8 float32, four times: once for each eight lanes of a warp
// First halves lie in the order of the 32s, second halves backwards. Eight lanes that load 16 bytes
// each take the same half of eight 32s, or both halves of four in one of the patterns of formats.cuh:
// either way no two of them ask the same bank.
#pragma once
#include "bits.cuh"

// 127 · 65,536 less what the lower bytes may round up.
constexpr float LARGEST_FIXED = 8290304.0f;

constexpr u32 FIXED_TILE = 256, FIXED_TILE_BYTES = 1024, FIXED_PLANE = 256;
constexpr u32 FIXED_SUMS = 3 * FIXED_PLANE, FIXED_SCALES = FIXED_SUMS + 128;

DEVICE u64 fixed_row_bytes(u32 columns) {
    return u64((columns + FIXED_TILE - 1) / FIXED_TILE) * FIXED_TILE_BYTES;
}

// Where in a row the high byte of value `at` lies; the others are FIXED_PLANE bytes behind each other.
DEVICE u32 fixed_place(u32 at) {
    const u32 backwards = at / 16 % 2 * (128 + 112);
    return at / FIXED_TILE * FIXED_TILE_BYTES + ((at / 2 & 112) ^ backwards) + at % 16;
}

// Where the sum of eight values from `at` on lies, and copy `copy` of the scale of their 32.
DEVICE u32 fixed_sum_place(u32 at) {
    return at / FIXED_TILE * FIXED_TILE_BYTES + FIXED_SUMS + at / 8 % 32 * 4;
}
DEVICE u32 fixed_scale_place(u32 at, u32 copy) {
    return at / FIXED_TILE * FIXED_TILE_BYTES + FIXED_SCALES + 32 * copy + at / 32 % 8 * 4;
}

// Write value `at` of a fixed-point row; the 32 lanes hold 32 values side by side, whose first is
// a multiple of 32.
DEVICE void write_fixed(u8 *row, u32 at, float value) {
    const float scale = warp_max(fabsf(value)) / LARGEST_FIXED;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const int whole = __float2int_rn(fminf(fmaxf(value * inverse, -LARGEST_FIXED), LARGEST_FIXED));
    const int upper = (whole + 128) >> 8, high = (upper + 128) >> 8;
    u8 *target = row + fixed_place(at);
    target[0] = u8(high), target[FIXED_PLANE] = u8(upper - 256 * high);
    target[2 * FIXED_PLANE] = u8(whole - 256 * upper);
    float sum = value;
#pragma unroll
    for (int distance = 4; distance; distance >>= 1)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    const u32 lane = at % 32;
    if (lane < 4) *reinterpret_cast<float *>(row + fixed_scale_place(at, lane)) = scale;
    if (lane % 8 == 0) *reinterpret_cast<float *>(row + fixed_sum_place(at)) = sum;
}

// The same for the four values from `at`, a multiple of four, on; eight lanes hold 32 values.
DEVICE void write_fixed(u8 *row, u32 at, float4 values) {
    float largest = fmaxf(fmaxf(fabsf(values.x), fabsf(values.y)),
                          fmaxf(fabsf(values.z), fabsf(values.w)));
#pragma unroll
    for (int distance = 4; distance; distance >>= 1)
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, distance));
    const float scale = largest / LARGEST_FIXED, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const float each[4] = {values.x, values.y, values.z, values.w};
    u32 planes[3] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float moved = fminf(fmaxf(each[i] * inverse, -LARGEST_FIXED), LARGEST_FIXED);
        const int whole = __float2int_rn(moved), upper = (whole + 128) >> 8;
        const int high = (upper + 128) >> 8;
        planes[0] |= u32(u8(high)) << (8 * i);
        planes[1] |= u32(u8(upper - 256 * high)) << (8 * i);
        planes[2] |= u32(u8(whole - 256 * upper)) << (8 * i);
    }
#pragma unroll
    for (int p = 0; p < 3; ++p)
        *reinterpret_cast<u32 *>(row + fixed_place(at) + p * FIXED_PLANE) = planes[p];
    const float four = (values.x + values.y) + (values.z + values.w);
    const float sum = four + __shfl_xor_sync(ALL_LANES, four, 1);
    const u32 lane = at / 4 % 8;
    if (lane < 4) *reinterpret_cast<float *>(row + fixed_scale_place(at, lane)) = scale;
    if (lane % 2 == 0) *reinterpret_cast<float *>(row + fixed_sum_place(at)) = sum;
}
