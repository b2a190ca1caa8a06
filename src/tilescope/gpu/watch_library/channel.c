/* The socket to tilescope: one packet a record, sent or dropped, never waited for. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOWEST_DESCRIPTOR = 200, SEND_BUFFER_BYTES = 4 << 20 };

static int channel = -1;
static struct stat identity; /* of the socket: a program may close every descriptor and reuse its number */
static atomic_int quiet = 1;
static atomic_uint pid, lost, lost_refused;

static void start_counting(void) {
    atomic_store(&pid, (unsigned)getpid());
    atomic_store(&lost, 0);
    atomic_store(&lost_refused, 0);
}

void watch_connect(void) {
    const char *path = getenv("TILESCOPE_WATCH_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof address.sun_path) return;
    strcpy(address.sun_path, path);
    int low = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (low < 0) return;
    channel = fcntl(low, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR); /* programs count on the low numbers */
    if (channel < 0)
        channel = low;
    else
        close(low);
    int bytes = SEND_BUFFER_BYTES; /* the system may grant less */
    setsockopt(channel, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (connect(channel, (struct sockaddr *)&address, sizeof address) || fstat(channel, &identity)) {
        close(channel);
        return;
    }
    start_counting();
    pthread_atfork(NULL, NULL, start_counting);
    atomic_store(&quiet, 0);
}

int watch_is_quiet(void) { return atomic_load_explicit(&quiet, memory_order_relaxed); }

int watch_send(struct watch_record *record) {
    struct stat found;
    if (watch_is_quiet()) return 0;
    if (fstat(channel, &found) || found.st_ino != identity.st_ino || found.st_dev != identity.st_dev) {
        atomic_store(&quiet, 1);
        return 0;
    }
    record->pid = atomic_load(&pid);
    record->lost = atomic_load(&lost);
    record->lost_refused = atomic_load(&lost_refused);
    size_t bytes = offsetof(struct watch_record, text) + record->text_bytes;
    if (send(channel, record, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes) return 1;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) {
        atomic_fetch_add(&lost, 1); /* the reader is slow, and will be told how much it missed */
        if (record->kind == WATCH_CALL && record->arguments.result) atomic_fetch_add(&lost_refused, 1);
    } else {
        atomic_store(&quiet, 1); /* the reader is gone */
    }
    return 0;
}

/* Append one line; a line without room is left out whole. Control characters in its fields become '?'. */
void watch_append(struct watch_record *record, const char *format, ...) {
    size_t room = WATCH_TEXT_BYTES - record->text_bytes;
    char *line = record->text + record->text_bytes;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, room, format, arguments);
    va_end(arguments);
    if (length <= 0 || (size_t)length >= room) return;
    for (int i = 0; i < length - 1; i++)
        if ((unsigned char)line[i] < ' ' && line[i] != '\t') line[i] = '?';
    record->text_bytes += (uint32_t)length;
}

__attribute__((destructor)) static void say_goodbye(void) {
    if (watch_is_quiet() || !atomic_load(&lost)) return;
    struct watch_record record;
    memset(&record, 0, offsetof(struct watch_record, text));
    record.kind = WATCH_GOODBYE;
    watch_send(&record);
}
