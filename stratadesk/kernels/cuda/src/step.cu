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
}
