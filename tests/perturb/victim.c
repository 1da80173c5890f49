/*
 * A computing loop, pinned to one core, whose steps all do the same work: `victim CORE STEPS WORK` prints the time of each
 * step in nanoseconds, a line each. With WORK 0 it prints the work of a step of 0.1 ms instead.
 */

#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEP 100000 /* ns */
#define TRIAL 1000000

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t step(uint64_t work)
{
    static volatile uint64_t kept;
    uint64_t begun = now(), number = kept;
    while (work--)
        number = number * 6364136223846793005u + 1442695040888963407u;
    kept = number;
    return now() - begun;
}

int main(int argc, char **argv)
{
    cpu_set_t cores;
    if (argc != 4)
        return 2;
    CPU_ZERO(&cores);
    CPU_SET((size_t)atoi(argv[1]), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores))
        return 1;
    uint64_t steps = strtoull(argv[2], NULL, 10), work = strtoull(argv[3], NULL, 10);
    if (!work) {
        uint64_t least = UINT64_MAX;
        for (int trial = 0; trial < 50; trial++) {
            uint64_t took = step(TRIAL);
            least = took < least ? took : least;
        }
        printf("%llu\n", (unsigned long long)((uint64_t)TRIAL * STEP / least));
        return 0;
    }
    uint64_t *times = calloc(steps, sizeof *times);
    if (!times)
        return 1;
    for (uint64_t n = 0; n < steps; n++)
        times[n] = step(work);
    for (uint64_t n = 0; n < steps; n++)
        printf("%llu\n", (unsigned long long)times[n]);
    return 0;
}
