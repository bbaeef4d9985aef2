// Floats, and formats whose blocks are 32 values; see formats.cuh.
#pragma once

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
    static DEVICE void fill(u32 *table) {
        if (threadIdx.x == 0) table[0] = BYTES0, table[1] = BYTES2, table[2] = 0x32103210u;
    }

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
