// Reading memory as fast as the card can, to know what other kernels are measured against.
#include "bits.cuh"

// sums[block] = the sum of all words that the block reads of `count` groups of 16 bytes; with it
// nothing read can be left out.
extern "C" __global__ void __launch_bounds__(512)
    read_all(const u8 *memory, u64 count, u32 *sums) {
    constexpr int AT_ONCE = 4;
    u32 sum = 0;
    const u64 stride = u64(gridDim.x) * blockDim.x;
    u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + (AT_ONCE - 1) * stride < count; i += AT_ONCE * stride) {
        uint4 words[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) words[k] = load128(memory + 16 * (i + k * stride));
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            sum += words[k].x + words[k].y + words[k].z + words[k].w;
    }
    for (; i < count; i += stride) {
        const uint4 words = load128(memory + 16 * i);
        sum += words.x + words.y + words.z + words.w;
    }
#pragma unroll
    for (int distance = WARP / 2; distance; distance >>= 1)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    if (threadIdx.x % WARP == 0) atomicAdd(sums + blockIdx.x, sum);
}
