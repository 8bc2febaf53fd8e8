/* Preloaded into a gateway: counts its allocations in a file that the benchmark reads.
   For glibc only. Frees are not counted. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static atomic_ulong before_main;
static atomic_ulong *count = &before_main;

__attribute__((constructor)) static void share(void) {
    const char *path = getenv("LG_BENCH_ALLOCATIONS");
    int file = path ? open(path, O_RDWR) : -1;
    void *page = mmap(0, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) count = page;
    if (file >= 0) close(file);
}

static void one(void) { atomic_fetch_add_explicit(count, 1, memory_order_relaxed); }

void *malloc(size_t size) { one(); return __libc_malloc(size); }
void *calloc(size_t items, size_t size) { one(); return __libc_calloc(items, size); }
void *realloc(void *old, size_t size) { one(); return __libc_realloc(old, size); }
void *memalign(size_t align, size_t size) { one(); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { one(); return __libc_memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
    one();
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}
