// Tensor formats: how the values of a block are read from its bytes.
//
// A row is a whole number of blocks of BLOCK values in BYTES bytes. A block is read by LANES
// lanes, each of which takes VALUES values in GROUPS groups of equal length; a value is
// q * scale + offset of its group, rounded after each operation, as in the reference
// dequantization of the gguf package. `at` says where in the block value i of a lane lies: a part
// that depends on the lane, plus one that depends on i.
//
// Values that a format centres (q - 8, say) are read as multiples of 2^k, which end in the highest bit
// of their bytes: flipping that bit subtracts half the range. Their scale is 2^-k as large, exactly.
//
// Floats (INTEGERS false) are read as floats, four or eight side by side. Of all other formats q is
// a signed byte: `read` gives four of them a word, RUN values lie side by side at least, and a
// group lies inside one of the 32-value blocks of activations (see fixed.cuh).
//
// Lanes are dealt out so that neighbours read neighbouring bytes. Blocks begin at multiples of
// the largest power of two that divides BYTES.
//
// A format may need TABLE words that its lanes read each at another place: all threads of a block
// `fill` them, and `prepare_table` must have done so before the first `read`.
#pragma once
#include "bits.cuh"
#include "codebooks.cuh"

struct Untabled {
    static constexpr int TABLE = 0;
};

// The table of format F.
template <class F> DEVICE u32 *table_of() {
    alignas(16) __shared__ u32 words[F::TABLE];
    return words;
}

// Fill the table of format F, if it has one; all threads of a block must come here, whole multiples
// of 128.
template <class F> DEVICE void prepare_table() {
    if constexpr (F::TABLE > 0) {
        F::fill(table_of<F>());
        __syncthreads();
    }
}

#include "formats_32.cuh"
#include "formats_k.cuh"
#include "formats_iq.cuh"
