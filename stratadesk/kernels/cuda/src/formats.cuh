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
// A format may need TABLE words that its lanes read each at another place: `entry` says what they
// are, and `prepare_table` must have put them into shared memory before the first `read`.
#pragma once
#include "bits.cuh"
#include "codebooks.cuh"

struct Untabled {
    static constexpr int TABLE = 0;
};

// The table of format F.
template <class F> DEVICE u32 *table_of() {
    __shared__ u32 words[F::TABLE];
    return words;
}

// Fill the table of format F, if it has one; all threads of a block must come here.
template <class F> DEVICE void prepare_table() {
    if constexpr (F::TABLE > 0) {
        for (u32 i = threadIdx.x; i < F::TABLE; i += blockDim.x) table_of<F>()[i] = F::entry(i);
        __syncthreads();
    }
}

struct F32 : Untabled {
    static constexpr int BLOCK = 4, BYTES = 16, LANES = 1, VALUES = 4, GROUPS = 1;
    static constexpr bool OFFSETS = false, INTEGERS = false;
    static constexpr DEVICE int at(int, int i) { return i; }
    static DEVICE void read(const u8 *block, int, float *q) {
        const uint4 words = load128(block);
        q[0] = __uint_as_float(words.x), q[1] = __uint_as_float(words.y);
        q[2] = __uint_as_float(words.z), q[3] = __uint_as_float(words.w);
    }
};

// Eight values of two bytes.
struct Halves : Untabled {
    static constexpr int BLOCK = 8, BYTES = 16, LANES = 1, VALUES = 8, GROUPS = 1;
    static constexpr bool OFFSETS = false, INTEGERS = false;
    static constexpr DEVICE int at(int, int i) { return i; }
};

struct F16 : Halves {
    static DEVICE void read(const u8 *block, int, float *q) {
        const uint4 words = load128(block);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) q[i] = half_to_float(u16(pairs[i / 2] >> (16 * (i % 2))));
    }
};

struct BF16 : Halves {
    static DEVICE void read(const u8 *block, int, float *q) {
        const uint4 words = load128(block);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 8; ++i)
            q[i] = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
    }
};

constexpr u32 LOW_NIBBLES = 0x0f0f0f0fu, SIGNS = 0x80808080u;

// N words from byte `offset` + 2 on of blocks that begin at even addresses with two bytes of scale. The
// words are loaded from `offset` on, so that all N + 1 hold bytes of the block wherever it begins.
template <int N> DEVICE void load_behind_two(const u8 *block, u32 offset, u32 *out) {
    u32 words[N + 1];
    const u32 shift = load_around<N + 1>(block, offset, words);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = word_from(words + i, shift + 16);
}

// N words from byte `offset` on of blocks that begin at even addresses and go on behind the words.
template <int N> DEVICE void load_within(const u8 *block, u32 offset, u32 *out) {
    u32 words[N + 1];
    const u32 shift = load_around<N + 1>(block, offset, words);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = word_from(words + i, shift);
}

// Half scale, 32 signed bytes.
struct Q8_0 : Untabled {
    static constexpr int BLOCK = 32, BYTES = 34, LANES = 2, VALUES = 16, GROUPS = 1, RUN = 16;
    static constexpr bool OFFSETS = false, INTEGERS = true;
    static constexpr DEVICE int at(int lane, int i) { return 16 * lane + i; }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        load_behind_two<4>(block, 16 * lane, q);
        scale[0] = half_to_float(load16(block));
    }
};

// A lane takes a block: low nibbles of its last 16 bytes are values of the first half, high ones of
// the second.
struct Nibbles32 : Untabled {
    static constexpr int BLOCK = 32, LANES = 1, VALUES = 32, GROUPS = 1, RUN = 16;
    static constexpr bool INTEGERS = true;
    static constexpr DEVICE int at(int, int i) { return i; }
};

struct Q4_0 : Nibbles32 {
    static constexpr int BYTES = 18;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *) {
        u32 words[5];
        const u32 shift = load_around<5>(block, 0, words);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 bytes = word_from(words + w, shift + 16);
            q[w] = ((bytes << 4) & ~LOW_NIBBLES) ^ SIGNS, q[4 + w] = (bytes & ~LOW_NIBBLES) ^ SIGNS;
        }
        scale[0] = half_to_float(u16(words[0] >> shift)) * 0.0625f;
    }
};

struct Q4_1 : Nibbles32 {
    static constexpr int BYTES = 20;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *offset) {
        const u32 pair = load32(block);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 bytes = load32(block + 4 + 4 * w);
            q[w] = bytes & LOW_NIBBLES, q[4 + w] = (bytes >> 4) & LOW_NIBBLES;
        }
        scale[0] = half_to_float(u16(pair)), offset[0] = half_to_float(u16(pair >> 16));
    }
};

// The low four bits of `bits`, each as bit 4 of a byte, or as bit 7.
DEVICE u32 fifth_bits(u32 bits) { return ((bits & 15u) * 0x02040810u) & 0x10101010u; }
DEVICE u32 eighth_bits(u32 bits) { return ((bits & 15u) * 0x10204080u) & SIGNS; }

struct Q5_0 : Nibbles32 {
    static constexpr int BYTES = 22;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *) {
        u32 words[6];
        const u32 shift = load_around<6>(block, 0, words), flipped = ~word_from(words, shift + 16);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 bytes = word_from(words + 1 + w, shift + 16);
            q[w] = ((bytes << 3) & 0x78787878u) | eighth_bits(flipped >> (4 * w));
            q[4 + w] = ((bytes >> 1) & 0x78787878u) | eighth_bits(flipped >> (16 + 4 * w));
        }
        scale[0] = half_to_float(u16(words[0] >> shift)) * 0.125f;
    }
};

struct Q5_1 : Nibbles32 {
    static constexpr int BYTES = 24;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *offset) {
        const u32 pair = load32(block), high = load32(block + 4);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 bytes = load32(block + 8 + 4 * w);
            q[w] = (bytes & LOW_NIBBLES) | fifth_bits(high >> (4 * w));
            q[4 + w] = ((bytes >> 4) & LOW_NIBBLES) | fifth_bits(high >> (16 + 4 * w));
        }
        scale[0] = half_to_float(u16(pair)), offset[0] = half_to_float(u16(pair >> 16));
    }
};

// Formats whose nibbles are indices into 16 signed bytes, BYTES0 to BYTES3. An instruction has room
// for one constant: the others are in the table, since lanes would load them for each instruction.
template <u32 BYTES0, u32 BYTES1, u32 BYTES2, u32 BYTES3> struct Codebook {
    static constexpr int TABLE = 3;
    static DEVICE u32 entry(u32 i) { return i == 0 ? BYTES0 : i == 1 ? BYTES2 : 0x32103210u; }

    // What the low nibbles of four bytes name, and what the high ones do. A permutation chooses among
    // eight bytes, so both halves are looked up and bit 3 of each nibble chooses between them.
    static DEVICE void choose(const u32 *table, u32 bytes, u32 &low, u32 &high) {
        const u32 places = bytes & 0x77777777u, halves = ((bytes >> 1) & 0x44444444u) | table[2];
        u32 found[2];
#pragma unroll
        for (int k = 0; k < 2; ++k)
            found[k] = permute(permute(table[0], BYTES1, places >> (16 * k)),
                               permute(table[1], BYTES3, places >> (16 * k)), halves >> (16 * k));
        low = permute(found[0], found[1], 0x6420u), high = permute(found[0], found[1], 0x7531u);
    }
};
using CodebookIQ4 = Codebook<IQ4_BYTES>;
using CodebookMXFP4 = Codebook<MXFP4_BYTES>;

struct IQ4_NL : Nibbles32, CodebookIQ4 {
    using CodebookIQ4::TABLE;
    static constexpr int BYTES = 18;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ4_NL>();
        u32 words[5];
        const u32 shift = load_around<5>(block, 0, words);
#pragma unroll
        for (int w = 0; w < 4; ++w) choose(table, word_from(words + w, shift + 16), q[w], q[4 + w]);
        scale[0] = half_to_float(u16(words[0] >> shift));
    }
};

// Half of the E8M0 scale 2^(exponent - 127): its bits, down to the subnormals of exponents 0 and 1,
// which are greater than what the first product makes of them.
DEVICE float half_power(u32 exponent) {
    const int normal = int(exponent * 0x00800000u - 0x00800000u);
    return __int_as_float(max(normal, int(exponent * 0x00200000u + 0x00200000u)));
}

// The table holds twice the values of E2M1.
struct MXFP4 : Nibbles32, CodebookMXFP4 {
    using CodebookMXFP4::TABLE;
    static constexpr int BYTES = 17;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int, u32 *q, float *scale, float *) {
        const u32 *table = table_of<MXFP4>();
        u32 words[5];
        const u32 shift = load_around<5>(block, 0, words);
#pragma unroll
        for (int w = 0; w < 4; ++w) choose(table, word_from(words + w, shift + 8), q[w], q[4 + w]);
        scale[0] = half_power((words[0] >> shift) & 255u);
    }
};

// Formats whose blocks are 256 values and fall into strips with scales of their own; each of
// eight lanes takes 32 values.
struct Super : Untabled {
    static constexpr int BLOCK = 256, LANES = 8, VALUES = 32;
    static constexpr bool INTEGERS = true;
};

// A lane reads eight bytes; each pair of bits in them belongs to another quarter of 32 values.
struct Pairs256 : Super {
    static constexpr int GROUPS = 4, RUN = 8;
    static constexpr DEVICE int at(int lane, int i) {
        return 128 * (lane / 4) + 32 * (i / 8) + 8 * (lane % 4) + i % 8;
    }
    static DEVICE int strip(int lane, int quarter) {
        return 8 * (lane / 4) + 2 * quarter + lane % 4 / 2;
    }
};

// 16 bytes of sub-scale and sub-minimum, 64 of bit pairs, two halves.
struct Q2_K : Pairs256 {
    static constexpr int BYTES = 84;
    static constexpr bool OFFSETS = true;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const u32 bytes[2] = {load32(block + 16 + 8 * lane), load32(block + 20 + 8 * lane)};
        const u32 pair = load32(block + 80);
        const float factor = half_to_float(u16(pair)), least = half_to_float(u16(pair >> 16));
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const u32 packed = block[strip(lane, quarter)];
#pragma unroll
            for (int w = 0; w < 2; ++w)
                q[2 * quarter + w] = (bytes[w] >> (2 * quarter)) & 0x03030303u;
            scale[quarter] = factor * byte_to_float(packed & 15u, 0, 0.0f);
            offset[quarter] = -(least * byte_to_float(packed >> 4, 0, 0.0f));
        }
    }
};

// 32 bytes of third bits, 64 of bit pairs, 12 of sub-scales of 6 bits, half; values minus 4.
struct Q3_K : Pairs256 {
    static constexpr int BYTES = 110;
    static constexpr bool OFFSETS = false;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        u32 pairs[2], thirds[2];
        load_within<2>(block, 32 + 8 * lane, pairs);
        load_within<2>(block, 8 * (lane % 4), thirds);
        const float factor = half_to_float(load16(block + 108)) * 0.03125f;
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
#pragma unroll
            for (int w = 0; w < 2; ++w) {
                const u32 third = (~thirds[w] << (4 - 4 * (lane / 4))) << (3 - quarter);
                const u32 pair = (pairs[w] >> (2 * quarter)) << 5;
                q[2 * quarter + w] = (pair & 0x60606060u) | (third & SIGNS);
            }
            const int place = strip(lane, quarter);
            const u32 nibble = block[96 + place % 8] >> (4 * (place / 8));
            const u32 top = block[104 + place % 4] >> (2 * (place / 4));
            scale[quarter] = factor * byte_to_float((nibble & 15u) | ((top & 3u) << 4), 0, 32.0f);
        }
    }
};

// Scales and minima, 6 bits each, of sub-blocks 2·pair and 2·pair + 1, a byte each, from three
// words. Computed both ways and chosen: lanes of a warp need both.
DEVICE void scales_and_mins(const uint3 packed, int pair, u32 &scales, u32 &mins) {
    const int shift = 16 * (pair % 2);
    const u32 first = packed.x >> shift, second = packed.y >> shift, third = packed.z >> shift;
    const u32 upper_scales = (third & 0x0f0fu) | ((first & 0xc0c0u) >> 2);
    const u32 upper_mins = ((third >> 4) & 0x0f0fu) | ((second & 0xc0c0u) >> 2);
    scales = pair < 2 ? first & 0x3f3fu : upper_scales;
    mins = pair < 2 ? second & 0x3f3fu : upper_mins;
}

// A lane reads 16 bytes: low nibbles are of sub-block 2·(lane / 2), high of the next.
struct Nibbles256 : Super {
    static constexpr int GROUPS = 2, RUN = 16;
    static constexpr bool OFFSETS = true;
    static constexpr DEVICE int at(int lane, int i) {
        return 64 * (lane / 2) + 32 * (i / 16) + 16 * (lane % 2) + i % 16;
    }
    static DEVICE void scales(const u8 *block, int lane, float *scale, float *offset) {
        const uint4 words = load128(block);
        const float factor = half_to_float(u16(words.x)), least = half_to_float(u16(words.x >> 16));
        u32 sub_scales, sub_mins;
        scales_and_mins({words.y, words.z, words.w}, lane / 2, sub_scales, sub_mins);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            scale[side] = factor * byte_to_float(sub_scales, side, 0.0f);
            offset[side] = -(least * byte_to_float(sub_mins, side, 0.0f));
        }
    }
};

// Half scale and minimum, 12 bytes of sub-scales, 128 bytes of nibbles.
struct Q4_K : Nibbles256 {
    static constexpr int BYTES = 144;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const uint4 words = load128(block + 16 + 16 * lane);
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int w = 0; w < 4; ++w)
            q[w] = bytes[w] & LOW_NIBBLES, q[4 + w] = (bytes[w] >> 4) & LOW_NIBBLES;
        scales(block, lane, scale, offset);
    }
};

// As Q4_K, with 32 bytes of fifth bits before the nibbles.
struct Q5_K : Nibbles256 {
    static constexpr int BYTES = 176;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *offset) {
        const uint4 words = load128(block + 48 + 16 * lane);
        const uint4 fifths = load128(block + 16 + 16 * (lane % 2));
        const u32 bytes[4] = {words.x, words.y, words.z, words.w};
        const u32 tops[4] = {fifths.x, fifths.y, fifths.z, fifths.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 top = tops[w] >> (lane / 2 * 2);
            q[w] = (bytes[w] & LOW_NIBBLES) | ((top & 0x01010101u) << 4);
            q[4 + w] = ((bytes[w] >> 4) & LOW_NIBBLES) | ((top & 0x02020202u) << 3);
        }
        scales(block, lane, scale, offset);
    }
};

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed sub-scales, half; values minus 32.
struct Q6_K : Super {
    static constexpr int BYTES = 210, GROUPS = 2, RUN = 16;
    static constexpr bool OFFSETS = false;
    static constexpr DEVICE int at(int lane, int i) {
        return 128 * (lane / 4) + 16 * (lane % 4) + 64 * (i / 16) + i % 16;
    }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const int half = lane / 4, quarter = lane % 4 / 2;
        u32 bytes[4], tops[4];
        load_within<4>(block, 16 * lane, bytes);
        load_within<4>(block, 128 + 32 * half + 16 * (lane % 2), tops);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const u32 top = (tops[w] ^ 0xaaaaaaaau) << (2 - 2 * quarter);
            q[w] = ((bytes[w] << 2) & 0x3c3c3c3cu) | ((top << 4) & 0xc0c0c0c0u);
            q[4 + w] = ((bytes[w] >> 2) & 0x3c3c3c3cu) | (top & 0xc0c0c0c0u);
        }
        const u8 *scales = block + 192 + 8 * half + lane % 4;
        const float factor = half_to_float(load16(block + 208)) * 0.25f;
        scale[0] = factor * float(i8(scales[0])), scale[1] = factor * float(i8(scales[4]));
    }
};

// A lane takes 32 values side by side.
struct Strips256 : Super {
    static constexpr int RUN = 16;
    static constexpr bool OFFSETS = false;
    static constexpr DEVICE int at(int lane, int i) { return 32 * lane + i; }
};

// Half scale, 8 sub-scales of 6 bits (minus 32), 128 bytes of indices.
struct IQ4_XS : Strips256, CodebookIQ4 {
    using CodebookIQ4::TABLE;
    static constexpr int BYTES = 136, GROUPS = 1;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ4_XS>();
        const uint2 first = load64(block + 8 + 16 * lane), second = load64(block + 16 + 16 * lane);
        const u32 bytes[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
        for (int w = 0; w < 4; ++w) choose(table, bytes[w], q[w], q[4 + w]);
        const uint2 head = load64(block);
        const u32 low = (head.y >> (4 * lane)) & 15u, high = (head.x >> (16 + 2 * lane)) & 3u;
        const float sub_scale = byte_to_float(low | (high << 4), 0, 32.0f);
        scale[0] = half_to_float(u16(head.x)) * sub_scale;
    }
};

// Bit i of `signs`, eight of them, as bit 4 · i + 2: where the selector of a permutation says that
// byte i comes from the second word.
DEVICE u32 spread_signs(u32 signs) {
    signs = (signs | signs << 12) & 0x000f000fu;
    signs = (signs | signs << 6) & 0x03030303u;
    return ((signs | signs << 3) & 0x11111111u) << 2;
}

// The eight signs that the low seven bits stand for: their number of ones is even.
DEVICE u32 signs_of(u32 bits) { return (bits & 127u) | (__popc(bits & 127u) << 7); }

// Four times the number in the BITS bits of `word` from bit `at` on: where a word of a table lies.
template <int BITS> DEVICE u32 place_of(u32 word, int at) {
    return (at < 2 ? word << (2 - at) : word >> (at - 2)) & (((1u << BITS) - 1u) << 2);
}

// Formats of a grid of magnitudes and a sign for each value. The table holds a word for each pattern
// of SIGN_BITS bits: 7, of which the eighth sign follows, or 8; then the grid's ENTRIES. A pattern's
// word is SELECTORS ^ its signs, as selectors of permutations that take a value or its negative.
template <int ENTRIES, int SIGN_BITS, u32 SELECTORS> struct Signed : Strips256 {
    static constexpr int PATTERNS = 1 << SIGN_BITS;
    static DEVICE u32 pattern(u32 bits) {
        return SELECTORS ^ spread_signs(SIGN_BITS == 7 ? signs_of(bits) : bits);
    }
    static DEVICE u32 word_at(const u32 *table, u32 place) {
        return load32(reinterpret_cast<const u8 *>(table) + place);
    }
    static DEVICE u32 grid_at(const u32 *table, u32 place) {
        return word_at(table + PATTERNS, place);
    }
};

// Three magnitudes: an entry is eight selectors, a nibble each, lowest first. The table's last word
// is the magnitudes, which a lane would load for each permutation if it were a constant.
template <int ENTRIES, int SIGN_BITS> struct Signed2 : Signed<ENTRIES, SIGN_BITS, 0u> {
    using Base = Signed<ENTRIES, SIGN_BITS, 0u>;
    static constexpr int TABLE = Base::PATTERNS + ENTRIES + 1;
    static DEVICE u32 entry_in(const u32 *grid, u32 i) {
        if (i < Base::PATTERNS) return Base::pattern(i);
        return i + 1 < TABLE ? grid[i - Base::PATTERNS] : IQ2_MAGNITUDES;
    }
    // Eight values: the entry and the pattern of signs at these places.
    static DEVICE void choose(const u32 *table, u32 entry, u32 signs, u32 *q) {
        const u32 selectors = Base::grid_at(table, entry) ^ Base::word_at(table, signs);
        const u32 magnitudes = table[TABLE - 1];
        q[0] = permute(magnitudes, IQ2_NEGATIVES, selectors);
        q[1] = permute(magnitudes, IQ2_NEGATIVES, selectors >> 16);
    }
};

// Eight magnitudes from 1 to 127: an entry is four of them, a byte each.
template <int ENTRIES, int SIGN_BITS> struct Signed3 : Signed<ENTRIES, SIGN_BITS, 0x32103210u> {
    using Base = Signed<ENTRIES, SIGN_BITS, 0x32103210u>;
    static constexpr int TABLE = Base::PATTERNS + ENTRIES;
    static DEVICE u32 entry_in(const u32 *grid, u32 i) {
        return i < Base::PATTERNS ? Base::pattern(i) : grid[i - Base::PATTERNS];
    }
    // Every byte of the difference borrows from the next, which has one more to give.
    static DEVICE u32 choose_four(u32 magnitudes, u32 selectors) {
        return permute(magnitudes, 0x01010100u - magnitudes, selectors);
    }
    // Eight values: the two entries and the pattern of signs at these places.
    static DEVICE void choose(const u32 *table, u32 first, u32 second, u32 signs, u32 *q) {
        const u32 selectors = Base::word_at(table, signs);
        q[0] = choose_four(Base::grid_at(table, first), selectors);
        q[1] = choose_four(Base::grid_at(table, second), selectors >> 16);
    }
};

// `nibble`, below 256, plus a half.
DEVICE float and_half(u32 nibble) { return byte_to_float(nibble, 0, -0.5f); }

// Half scale; per 32 values four indices and a word of signs and sub-scale.
struct IQ2_XXS : Signed2<256, 7> {
    static constexpr int BYTES = 66, GROUPS = 1;
    static DEVICE u32 entry(u32 i) { return entry_in(IQ2_XXS_GRID, i); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_XXS>();
        u32 words[2];
        load_behind_two<2>(block, 8 * lane, words);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            choose(table, place_of<8>(words[0], 8 * k), place_of<7>(words[1], 7 * k), q + 2 * k);
        scale[0] = half_to_float(load16(block)) * and_half(words[1] >> 28) * 0.25f;
    }
};

// The two scales of a strip: a nibble each.
DEVICE void strip_scales(float factor, u32 nibbles, float *scale) {
    scale[0] = factor * and_half(nibbles & 15u) * 0.25f;
    scale[1] = factor * and_half(nibbles >> 4) * 0.25f;
}

// Half scale, 32 words of index and signs, 16 sub-scales of 4 bits.
struct IQ2_XS : Signed2<512, 7> {
    static constexpr int BYTES = 74, GROUPS = 2;
    static DEVICE u32 entry(u32 i) { return entry_in(IQ2_XS_GRID, i); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_XS>();
        u32 words[2];
        load_behind_two<2>(block, 8 * lane, words);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int at = 16 * (k % 2);
            choose(table, place_of<9>(words[k / 2], at), place_of<7>(words[k / 2], at + 9),
                   q + 2 * k);
        }
        strip_scales(half_to_float(load16(block)), block[66 + lane], scale);
    }
};

// Half scale, 32 low bytes of indices, 32 of signs, 8 of high bits, 8 of sub-scales.
struct IQ2_S : Signed2<1024, 8> {
    static constexpr int BYTES = 82, GROUPS = 2;
    static DEVICE u32 entry(u32 i) { return entry_in(IQ2_S_GRID, i); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ2_S>();
        const u32 low = load32_even(block + 2 + 4 * lane), signs = load32_even(block + 34 + 4 * lane);
        const u32 high = block[66 + lane] << 10;
#pragma unroll
        for (int k = 0; k < 4; ++k)
            choose(table, place_of<8>(low, 8 * k) | ((high >> (2 * k)) & 0xc00u),
                   place_of<8>(signs, 8 * k), q + 2 * k);
        strip_scales(half_to_float(load16(block)), block[74 + lane], scale);
    }
};

// Half scale, 64 indices, 8 words of signs and sub-scale.
struct IQ3_XXS : Signed3<256, 7> {
    static constexpr int BYTES = 98, GROUPS = 1;
    static DEVICE u32 entry(u32 i) { return entry_in(IQ3_XXS_GRID, i); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ3_XXS>();
        u32 indices[2];
        load_behind_two<2>(block, 8 * lane, indices);
        const u32 packed = load32_even(block + 66 + 4 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int at = 16 * (k % 2);
            choose(table, place_of<8>(indices[k / 2], at), place_of<8>(indices[k / 2], at + 8),
                   place_of<7>(packed, 7 * k), q + 2 * k);
        }
        scale[0] = half_to_float(load16(block)) * and_half(packed >> 28) * 0.5f;
    }
};

// Half scale, 64 low bytes of indices, 8 of ninth bits, 32 of signs, 4 of sub-scales.
struct IQ3_S : Signed3<512, 8> {
    static constexpr int BYTES = 110, GROUPS = 1;
    static DEVICE u32 entry(u32 i) { return entry_in(IQ3_S_GRID, i); }
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 *table = table_of<IQ3_S>();
        u32 low[2];
        load_behind_two<2>(block, 8 * lane, low);
        const u32 ninths = block[66 + lane], signs = load32_even(block + 74 + 4 * lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // The four ninth bits, each in a byte of its own, between the low bytes.
            const u32 tops = (((ninths >> (4 * half)) & 15u) * 0x00204081u) & 0x01010101u;
            const u32 pairs[2] = {permute(low[half], tops, 0x5140u),
                                  permute(low[half], tops, 0x7362u)};
#pragma unroll
            for (int k = 0; k < 2; ++k)
                choose(table, place_of<9>(pairs[k], 0), place_of<9>(pairs[k], 16),
                       place_of<8>(signs, 16 * half + 8 * k), q + 4 * half + 2 * k);
        }
        const u32 nibble = (block[106 + lane / 2] >> (4 * (lane % 2))) & 15u;
        scale[0] = half_to_float(load16(block)) * byte_to_float(1u + 2u * nibble, 0, 0.0f);
    }
};

DEVICE uint2 entry_of(const u64 *grid, u32 index) {
    return load64(reinterpret_cast<const u8 *>(grid + index));
}

// Values in eighths: 8 · grid + 1, or - 1 where `negative`, the grid being -1, 0 or 1; `entry` holds
// 8 · grid. The sign bits keep carries out of neighbours.
DEVICE void moved_entry(uint2 entry, bool negative, u32 *q) {
    const u32 move = negative ? 0u - 0x01010101u : 0x01010101u;
    q[0] = ((entry.x ^ 0x80808080u) + move) ^ 0x80808080u;
    q[1] = ((entry.y ^ 0x80808080u) + move) ^ 0x80808080u;
}

// Half scale, 32 low bytes of indices, 8 words of high bits, sub-scale and sign.
struct IQ1_S : Strips256 {
    static constexpr int BYTES = 50, GROUPS = 1;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 packed = load16(block + 34 + 2 * lane), low = load32_even(block + 2 + 4 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u32 index = ((low >> (8 * k)) & 255u) | (((packed >> (3 * k)) & 7u) << 8);
            moved_entry(entry_of(IQ1_GRID, index), packed >> 15, q + 2 * k);
        }
        const float sub_scale = byte_to_float(2u * ((packed >> 12) & 7u) + 1u, 0, 0.0f);
        scale[0] = half_to_float(load16(block)) * sub_scale * 0.125f;
    }
};

// 32 low bytes of indices, 16 of high bits and signs, 4 words of sub-scales, whose highest
// nibbles are the half scale, lowest first.
struct IQ1_M : Strips256 {
    static constexpr int BYTES = 56, GROUPS = 2;
    static DEVICE void read(const u8 *block, int lane, u32 *q, float *scale, float *) {
        const u32 low = load32(block + 4 * lane), highs = load16(block + 32 + 2 * lane);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u32 high = highs >> (4 * k);
            const u32 index = ((low >> (8 * k)) & 255u) | ((high & 7u) << 8);
            moved_entry(entry_of(IQ1_GRID, index), high & 8u, q + 2 * k);
        }
        const uint2 words = load64(block + 48);
        const u32 bits = ((words.x >> 12) & 0xfu) | ((words.x >> 24) & 0xf0u) |
                         ((words.y >> 4) & 0xf00u) | ((words.y >> 16) & 0xf000u);
        const u32 word = (lane < 4 ? words.x : words.y) >> (16 * (lane / 2 % 2) + 6 * (lane % 2));
        const float factor = half_to_float(u16(bits));
        scale[0] = factor * byte_to_float(2u * (word & 7u) + 1u, 0, 0.0f) * 0.125f;
        scale[1] = factor * byte_to_float(2u * ((word >> 3) & 7u) + 1u, 0, 0.0f) * 0.125f;
    }
};
