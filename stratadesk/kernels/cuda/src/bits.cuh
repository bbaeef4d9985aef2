// Loads, conversions and sums that every kernel uses. No header of the CUDA toolkit is needed.
#pragma once
#include "machine.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;

// Loads from any memory. `at` must be a multiple of the size.
DEVICE u16 load16(const u8 *at) { return *reinterpret_cast<const u16 *>(at); }
DEVICE u32 load32(const u8 *at) { return *reinterpret_cast<const u32 *>(at); }
DEVICE uint2 load64(const u8 *at) { return *reinterpret_cast<const uint2 *>(at); }
DEVICE uint4 load128(const u8 *at) { return *reinterpret_cast<const uint4 *>(at); }

// Four bytes from an address that is only a multiple of two.
DEVICE u32 load32_even(const u8 *at) { return load16(at) | (u32(load16(at + 2)) << 16); }

// N words from any address: aligned ones, shifted together. Nothing behind the last word that
// holds a byte of them is read.
template <int N> DEVICE void load_words(const u8 *at, u32 *out) {
    const u64 address = reinterpret_cast<u64>(at);
    const u8 *words = reinterpret_cast<const u8 *>(address & ~3ull);
    __builtin_assume(__isGlobal(words));
    const u32 shift = u32(address & 3u) * 8;
    u32 next = load32(words);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const u32 word = next;
        next = i + 1 < N || shift ? load32(words + 4 * (i + 1)) : 0u;
        out[i] = __funnelshift_r(word, next, shift);
    }
}

// N words from the one on that holds byte `offset` of a block, a multiple of four; every one of them
// must hold a byte of the tensor. Returns how many bits of the first lie before that byte.
template <int N> DEVICE u32 load_around(const u8 *block, u32 offset, u32 *out) {
    const u64 address = reinterpret_cast<u64>(block);
    const u8 *words = reinterpret_cast<const u8 *>(address & ~3ull) + offset;
    __builtin_assume(__isGlobal(words));
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = load32(words + 4 * i);
    return u32(address & 3u) * 8;
}

// The word that begins at bit `shift`, at most 32, of two.
DEVICE u32 word_from(const u32 *two, u32 shift) { return __funnelshift_rc(two[0], two[1], shift); }

// Byte `index` of `bytes`, less `centre`. The byte is put into the mantissa of 2^23, which costs
// a permutation and a subtraction; the conversion instruction runs at a quarter of their rate.
DEVICE float byte_to_float(u32 bytes, int index, float centre) {
    const u32 bits = __byte_perm(bytes, 0x4b000000u, 0x7540u | index);
    return __uint_as_float(bits) - (8388608.0f + centre);
}

// The low byte as a signed number.
DEVICE float signed_byte_to_float(u32 byte) { return byte_to_float(byte ^ 0x80u, 0, 128.0f); }

// The sum over a warp, in every lane; the order is fixed.
DEVICE float warp_sum(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance >>= 1)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

DEVICE float warp_max(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance >>= 1)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

// The sum over a block of at most 1,024 threads, in every thread. `scratch` holds a float a warp.
DEVICE float block_sum(float value, float *scratch) {
    const int warps = (blockDim.x + WARP - 1) / WARP;
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

// The largest value of a block, in every thread.
DEVICE float block_max(float value, float *scratch) {
    const int warps = (blockDim.x + WARP - 1) / WARP;
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    return warp_max(scratch[min(int(threadIdx.x) % WARP, warps - 1)]);
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
