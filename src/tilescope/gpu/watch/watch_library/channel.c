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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOWEST_DESCRIPTOR = 200, SEND_BUFFER_BYTES = 4 << 20 };

static int channel = -1;
static struct stat identity; /* of the socket: a program may close every descriptor and reuse its number */
static atomic_int quiet = 1;
static atomic_uint pid;
static int counts_file = -1;
struct watch_counts *watch_counts;

static void remember_pid(void) { atomic_store(&pid, (unsigned)getpid()); }

/* Shared memory that exists for certain: to touch a page that the system cannot give would kill the program, and so
 * would a file beyond its limit. */
static int share_counts(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < sizeof *watch_counts) return 0;
    counts_file = memfd_create("tilescope-watch", MFD_CLOEXEC);
    if (counts_file < 0 || posix_fallocate(counts_file, 0, sizeof *watch_counts)) return 0;
    void *memory = mmap(NULL, sizeof *watch_counts, PROT_READ | PROT_WRITE, MAP_SHARED, counts_file, 0);
    if (memory == MAP_FAILED) return 0;
    watch_counts = memory;
    return 1;
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
    if (!connect(channel, (struct sockaddr *)&address, sizeof address) && !fstat(channel, &identity) && share_counts()) {
        remember_pid();
        pthread_atfork(NULL, NULL, remember_pid);
        atomic_store(&quiet, 0);
    } else {
        close(channel);
        if (counts_file >= 0) close(counts_file);
    }
}

int watch_is_quiet(void) { return atomic_load_explicit(&quiet, memory_order_acquire); }

/* Send a packet, with a descriptor if there is one. */
static int sent(struct watch_record *record, int descriptor) {
    struct stat found;
    if (watch_is_quiet()) return 0;
    if (fstat(channel, &found) || found.st_ino != identity.st_ino || found.st_dev != identity.st_dev) {
        atomic_store(&quiet, 1);
        return 0;
    }
    record->pid = atomic_load(&pid);
    size_t bytes = offsetof(struct watch_record, text) + record->text_bytes;
    struct iovec part = {record, bytes};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    if (sendmsg(channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes) return 1;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) {
        atomic_fetch_add(&watch_counts->lost, 1); /* the reader is slow, and can see how much it missed */
        if (record->arguments.result) atomic_fetch_add(&watch_counts->lost_refused, 1);
    } else {
        atomic_store(&quiet, 1); /* the reader is gone */
    }
    return 0;
}

int watch_send(struct watch_record *record) { return sent(record, -1); }

int watch_send_hello(struct watch_record *record) {
    int done = sent(record, counts_file);
    close(counts_file);
    if (!done) atomic_store(&quiet, 1);
    return done;
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
