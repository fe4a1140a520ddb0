/* Preloaded by scripts/simulate.sh: random numbers of a process that SIMULATION_SEED decides. Rust's hash maps take the
 * order of their entries from such numbers, and a walk through the simulated cluster depends on it. Each thread begins
 * with the same numbers, so tests that run at once do not disturb each other. Not for anything secret. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

/* Marsaglia's xorshift, 2003. Its state is never 0. */
static uint64_t next(void) {
    static __thread uint64_t state;
    if (state == 0) {
        const char *seed = getenv("SIMULATION_SEED");
        state = UINT64_C(0x9E3779B97F4A7C15) * (2 * strtoull(seed != NULL ? seed : "0", NULL, 10) + 1);
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

ssize_t getrandom(void *to, size_t size, unsigned int flags) {
    unsigned char *bytes = to;
    (void)flags;
    for (size_t at = 0; at < size; at++) {
        bytes[at] = (unsigned char)(next() >> 32);
    }
    return (ssize_t)size;
}

int getentropy(void *to, size_t size) {
    (void)getrandom(to, size, 0);
    return 0;
}
