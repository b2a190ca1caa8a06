/* The Python frames of the calling thread, where the process is a Python.
 *
 * Frames may be looked at by a thread that holds the GIL. Bindings release it around driver calls, and taking it
 * back could wait for ever: the thread that has it may be waiting for us. So a helper thread takes it, while the
 * caller, whose frames stand still, waits for the helper, but not for long.
 *
 * Only documented functions of CPython are used, looked up in the process.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_MILLISECONDS = 50 };

struct python {
    int (*is_initialized)(void);
    void *(*this_thread_state)(void);
    void *(*current_thread_state)(void);
    void *(*interpreter_of)(void *);
    void *(*main_interpreter)(void);
    int (*gil_ensure)(void);
    void (*gil_release)(int);
    void *(*frame_of)(void *);
    void *(*frame_back)(void *);
    void *(*frame_code)(void *);
    int (*frame_line)(void *);
    void *(*attribute)(void *, const char *);
    const char *(*utf8)(void *);
    void (*release)(void *);
    void (*fetch_error)(void **, void **, void **);
    void (*restore_error)(void *, void *, void *);
    int (*gc_disable)(void);
    int (*gc_enable)(void);
};

/* dlsym gives an object pointer; POSIX says that it holds a function's address. */
#define FIND(member, name)                                            \
    do {                                                              \
        void *symbol = dlsym(RTLD_DEFAULT, name);                     \
        if (symbol) memcpy(&python->member, &symbol, sizeof symbol);  \
    } while (0)

static int find_python(struct python *python) {
    memset(python, 0, sizeof *python);
    FIND(is_initialized, "Py_IsInitialized");
    if (!python->is_initialized) return 0;
    FIND(this_thread_state, "PyGILState_GetThisThreadState");
    FIND(current_thread_state, "_PyThreadState_UncheckedGet");
    FIND(current_thread_state, "PyThreadState_GetUnchecked"); /* its name from 3.13 on */
    FIND(interpreter_of, "PyThreadState_GetInterpreter");
    FIND(main_interpreter, "PyInterpreterState_Main");
    FIND(gil_ensure, "PyGILState_Ensure");
    FIND(gil_release, "PyGILState_Release");
    FIND(frame_of, "PyThreadState_GetFrame");
    FIND(frame_back, "PyFrame_GetBack");
    FIND(frame_code, "PyFrame_GetCode");
    FIND(frame_line, "PyFrame_GetLineNumber");
    FIND(attribute, "PyObject_GetAttrString");
    FIND(utf8, "PyUnicode_AsUTF8");
    FIND(release, "Py_DecRef");
    FIND(fetch_error, "PyErr_Fetch");
    FIND(restore_error, "PyErr_Restore");
    FIND(gc_disable, "PyGC_Disable");
    FIND(gc_enable, "PyGC_Enable");
    return python->this_thread_state && python->current_thread_state && python->interpreter_of &&
           python->main_interpreter && python->gil_ensure && python->gil_release && python->frame_of &&
           python->frame_back && python->frame_code && python->frame_line && python->attribute && python->utf8 &&
           python->release && python->fetch_error && python->restore_error && python->gc_disable &&
           python->gc_enable && python->is_initialized();
}

static void name_frame(const struct python *python, struct watch_record *record, void *frame) {
    void *code = python->frame_code(frame);
    void *file = python->attribute(code, "co_filename");
    void *name = python->attribute(code, "co_name");
    const char *file_text = file ? python->utf8(file) : NULL;
    const char *name_text = name ? python->utf8(name) : NULL;
    watch_append(record, "python\t%s\t%d\t%s\n", file_text ? file_text : "?", python->frame_line(frame),
                 name_text ? name_text : "?");
    if (file) python->release(file);
    if (name) python->release(name);
    python->release(code);
}

/* Append the frames of a thread that stands still; the GIL is held. No finaliser runs, no error is left behind. */
static void name_frames(const struct python *python, struct watch_record *record, void *thread_state) {
    void *type, *value, *trace;
    int collects = python->gc_disable();
    python->fetch_error(&type, &value, &trace);
    void *frame = python->frame_of(thread_state);
    for (int depth = 0; frame; depth++) {
        if (depth < WATCH_FRAMES) name_frame(python, record, frame);
        void *back = depth < WATCH_FRAMES ? python->frame_back(frame) : NULL;
        python->release(frame);
        frame = back;
    }
    python->restore_error(type, value, trace);
    if (collects) python->gc_enable();
}

/* What the calling thread and its helper share; the last of the two frees it. */
struct request {
    struct python python;
    void *thread_state;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int done, abandoned;
    atomic_int owners;
    struct watch_record record; /* its text alone is used */
};

static void let_go(struct request *request) {
    if (atomic_fetch_sub(&request->owners, 1) > 1) return;
    pthread_mutex_destroy(&request->mutex);
    pthread_cond_destroy(&request->changed);
    free(request);
}

static void *help(void *data) {
    struct request *request = data;
    int state = request->python.gil_ensure(); /* in a Python that is ending, this never returns */
    pthread_mutex_lock(&request->mutex);
    if (!request->abandoned) name_frames(&request->python, &request->record, request->thread_state);
    request->done = 1;
    pthread_cond_signal(&request->changed);
    pthread_mutex_unlock(&request->mutex);
    request->python.gil_release(state);
    let_go(request);
    return NULL;
}

static int start_helper(struct request *request) {
    pthread_t helper;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for the helper */
    int failed = pthread_create(&helper, &attributes, help, request);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static void ask_helper(const struct python *python, struct watch_record *record, void *thread_state) {
    struct request *request = calloc(1, sizeof *request);
    if (!request) return;
    request->python = *python;
    request->thread_state = thread_state;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&request->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&request->mutex, NULL);
    atomic_store(&request->owners, 2);
    if (!start_helper(request)) {
        let_go(request);
        let_go(request);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MILLISECONDS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&request->mutex);
    while (!request->done && pthread_cond_timedwait(&request->changed, &request->mutex, &until) != ETIMEDOUT) {}
    request->abandoned = 1;
    size_t bytes = request->done ? request->record.text_bytes : 0;
    if (bytes > WATCH_TEXT_BYTES - record->text_bytes) bytes = 0;
    memcpy(record->text + record->text_bytes, request->record.text, bytes);
    record->text_bytes += (uint32_t)bytes;
    pthread_mutex_unlock(&request->mutex);
    let_go(request);
}

/* Append "python TAB file TAB line TAB function" for each frame, the innermost first. */
void watch_name_python_frames(struct watch_record *record, int may_wait) {
    struct python python;
    if (!find_python(&python)) return;
    void *thread_state = python.this_thread_state();
    if (!thread_state || python.interpreter_of(thread_state) != python.main_interpreter()) return;
    if (python.current_thread_state() == thread_state)
        name_frames(&python, record, thread_state);
    else if (may_wait)
        ask_helper(&python, record, thread_state);
}
