/* Preloaded into a server: replaces its clock functions. A file has two numbers: how many seconds the wall clock is
   ahead, and, unless it is 0, the time in microseconds since 1970 at which the wall clock stands still. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        void *map = mmap(NULL, 2 * sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED)
            ahead = map;
        close(file);
    }
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = syscall(SYS_clock_gettime, id, t);
    /* Only the wall clock is changed. */
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long stands = ahead[1];
        if (stands) {
            t->tv_sec = stands / 1000000;
            t->tv_nsec = stands % 1000000 * 1000;
        }
        t->tv_sec += ahead[0];
    }
    return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}
