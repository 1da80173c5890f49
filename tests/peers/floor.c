/* Reads about 64 values of this machine once a second from files that stay open, and keeps none: the least that one can pay. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char *const paths[] = {"/proc/stat", "/proc/meminfo", "/proc/loadavg", "/proc/diskstats", "/proc/net/dev",
                                    "/proc/self/stat"};
enum { FILES = sizeof paths / sizeof *paths };

int main(void) {
  static char text[1 << 16];
  static volatile double values[4096];
  int files[FILES];
  for (int n = 0; n < FILES; n++)
    if ((files[n] = open(paths[n], O_RDONLY | O_CLOEXEC)) < 0) return 1;
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  for (;;) {
    int count = 0;
    for (int n = 0; n < FILES; n++) {
      ssize_t size = pread(files[n], text, sizeof text - 1, 0);
      if (size < 0) return 1;
      text[size] = 0;
      for (char *at = text; *at && count < 4096;) {
        if (!strncmp(at, "intr", 4)) at = strchr(at, '\n'); /* a number for each interrupt line */
        if (*at >= '0' && *at <= '9')
          values[count++] = strtod(at, &at);
        else
          at++;
      }
    }
    struct statvfs root;
    if (statvfs("/", &root)) return 1;
    values[0] = (double)root.f_blocks * root.f_frsize;
    due.tv_sec++;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
  }
}
