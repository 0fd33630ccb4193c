/* A wrong clock for a program that is not Python: preloaded, it adds the seconds that stand, as a 64-bit
   integer, in the file named by CHAOS_CLOCK. The file is mapped, so a jump is seen at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long none;
static volatile long long *shift_s = &none;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) shift_s = mapped;
  close(file);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int failed = real(now, zone);
  if (!failed && now) now->tv_sec += *shift_s;
  return failed;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift_s;
  return failed;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
