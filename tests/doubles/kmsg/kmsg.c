/*
 * Makes reads of one file behave like reads of /dev/kmsg: each returns one record; where the next one was overwritten,
 * EPIPE; at the end EAGAIN; with too small a buffer EINVAL. The file is $FAKE_KMSG; its records end with 0x1e, and
 * the record "!32" is an error with that number.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char ours[4096];
static char record[65536];

static int opened(const char *name, const char *path, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    const char *fake = getenv("FAKE_KMSG");
    int fd = real(path, flags, mode);
    if (fd >= 0 && fd < (int)sizeof ours)
        ours[fd] = fake && !strcmp(path, fake) && (flags & O_ACCMODE) == O_RDONLY && flags & O_NONBLOCK;
    return fd;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        return opened(#name, path, flags, mode);                                                                       \
    }
OPEN(open)
OPEN(open64)

ssize_t read(int fd, void *buffer, size_t size)
{
    ssize_t (*real)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    if (fd < 0 || fd >= (int)sizeof ours || !ours[fd])
        return real(fd, buffer, size);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t got = pread(fd, record, sizeof record, at);
    char *end = got > 0 ? memchr(record, 0x1e, (size_t)got) : NULL;
    if (!end) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t length = end - record;
    if ((size_t)length > size) {
        errno = EINVAL;
        return -1;
    }
    lseek(fd, at + length + 1, SEEK_SET);
    if (record[0] == '!') {
        errno = atoi(record + 1);
        return -1;
    }
    memcpy(buffer, record, (size_t)length);
    return length;
}
