// The time of day of a process, put forward or back: LD_PRELOAD it. TENON_CLOCK names a file of 8 bytes, the nanoseconds to add, which
// may change at any time. Other clocks go on as they are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TENON_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *bytes = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (bytes != MAP_FAILED) offset = bytes;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!real) begin();
    int failed = real(clock, time);
    if (failed == 0 && clock == CLOCK_REALTIME && offset) {
        int64_t all = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + *offset;
        time->tv_sec = all / 1000000000;
        time->tv_nsec = all % 1000000000;
    }
    return failed;
}
