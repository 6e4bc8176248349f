/* For LD_PRELOAD: each read of a file below $SLOW_FOLDER takes $SLOW_MS longer, and its process is noted in $SLOW_LOG. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static const char *folder, *log_file;
static long delay_ms;

__attribute__((constructor)) static void begin(void) {
    folder = getenv("SLOW_FOLDER");
    log_file = getenv("SLOW_LOG");
    delay_ms = atol(getenv("SLOW_MS") ? getenv("SLOW_MS") : "0");
}

static void delay(int file) {
    char link[64], path[4096], line[32];
    if (!folder) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder))) return;
    int log = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (write(log, line, snprintf(line, sizeof line, "%d\n", getpid())) < 0) abort();
    close(log);
    struct timespec pause = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

#define SLOW(result, name, file, parameters, arguments)                            \
    result name parameters {                                                       \
        static result(*usual) parameters;                                          \
        if (!usual) usual = (result(*) parameters)dlsym(RTLD_NEXT, #name);         \
        delay(file);                                                               \
        return usual arguments;                                                    \
    }

SLOW(ssize_t, read, file, (int file, void *to, size_t count), (file, to, count))
SLOW(ssize_t, pread, file, (int file, void *to, size_t count, off_t at), (file, to, count, at))
SLOW(ssize_t, pread64, file, (int file, void *to, size_t count, off64_t at), (file, to, count, at))
SLOW(size_t, fread, fileno(from), (void *to, size_t size, size_t count, FILE *from), (to, size, count, from))
