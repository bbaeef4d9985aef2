// Where a step stands: its position and the side of the recurrent states, in device memory, so
// that a captured graph needs no new arguments.
#include "bits.cuh"

struct Step {
    i32 position, side;
};

extern "C" {

// One thread: `tokens` more tokens are held, and the states' other side is the one to read.
__global__ void advance(Step *step, int tokens) {
    step->position += tokens;
    step->side = 1 - step->side;
}

// The index of the largest of `count` logits of each row, the lowest of equal ones; one block of
// 1,024 threads a row.
__global__ void __launch_bounds__(1024) argmax(const float *logits, i32 *tokens, int count) {
    __shared__ float values[WARP];
    __shared__ int places[WARP];
    logits += u64(blockIdx.x) * count;
    float best = __int_as_float(0xff800000);
    int where = count;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        if (logits[i] > best || where == count) best = logits[i], where = i;
    for (int level = 0; level < 2; ++level) {
#pragma unroll
        for (int distance = WARP / 2; distance; distance >>= 1) {
            const float other = __shfl_xor_sync(ALL_LANES, best, distance);
            const int at = __shfl_xor_sync(ALL_LANES, where, distance);
            if (at < count && (where == count || other > best || (other == best && at < where)))
                best = other, where = at;
        }
        if (level == 1) break;
        if (threadIdx.x % WARP == 0) values[threadIdx.x / WARP] = best, places[threadIdx.x / WARP] = where;
        __syncthreads();
        best = values[threadIdx.x % WARP], where = places[threadIdx.x % WARP];
    }
    if (threadIdx.x == 0) tokens[blockIdx.x] = where;
}
}
