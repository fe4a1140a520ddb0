/* The multithreaded server of Zheng and Gonzalez, "Optimizing Single Server Content Streaming"
 * (2021), 4.3, in its own language: C and pthreads. The main thread accepts connections into a
 * bounded shared buffer, a fixed number of workers block on it, and each handles one request of a
 * connection, closes it, and looks into the buffer again.
 *
 * The same architecture is in Rust in crates/baselines/src/models/threadpool.rs, whose
 * documentation says what the paper leaves open and how that was decided; the two make the same
 * system calls in the same order, so that a difference between them is the languages'.
 *
 * Usage: threadpool --listen IP:PORT --root DIR [--workers N] [--queue N] [--timeout TIME]
 *        threadpool --version
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

/* Connections that may wait to be accepted. */
#define BACKLOG 4096

/* The most that is read of a file at a time, in bytes. */
#define BLOCK 65536

/* How long a connection that must close is read on, so that what is unread does not make the kernel
 * reset it before the client has seen the answer. In milliseconds. */
#define LINGER 1000

/* Between two attempts to accept when there are no descriptors. In microseconds. */
#define OUT_OF_DESCRIPTORS 10000

struct options {
    struct sockaddr_storage listen;
    socklen_t listen_length;
    int root;
    size_t workers, queue;
    long timeout; /* milliseconds */
};

/* --- The shared buffer ------------------------------------------------------------------------ */

/* Connections that wait for a worker: a ring. */
struct shared_buffer {
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    int *connections;
    size_t places, first, count;
};

/* Waits for a place. */
static void insert(struct shared_buffer *buffer, int connection) {
    pthread_mutex_lock(&buffer->lock);
    while (buffer->count == buffer->places) {
        pthread_cond_wait(&buffer->freed, &buffer->lock);
    }
    buffer->connections[(buffer->first + buffer->count) % buffer->places] = connection;
    buffer->count++;
    pthread_cond_signal(&buffer->filled);
    pthread_mutex_unlock(&buffer->lock);
}

/* Waits for a connection. */
static int take(struct shared_buffer *buffer) {
    pthread_mutex_lock(&buffer->lock);
    while (buffer->count == 0) {
        pthread_cond_wait(&buffer->filled, &buffer->lock);
    }
    int connection = buffer->connections[buffer->first];
    buffer->first = (buffer->first + 1) % buffer->places;
    buffer->count--;
    pthread_cond_signal(&buffer->freed);
    pthread_mutex_unlock(&buffer->lock);
    return connection;
}

/* --- A worker --------------------------------------------------------------------------------- */

struct worker {
    struct shared_buffer *buffer;
    const struct options *options;
    pthread_t thread;
    char input[MAX_HEAD];
    struct answer answer;
    char block[BLOCK];
};

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static bool send_all(int connection, const char *bytes, size_t length, int flags) {
    while (length > 0) {
        ssize_t sent = send(connection, bytes, length, flags | MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        if (sent > 0) {
            bytes += sent;
            length -= (size_t)sent;
        }
    }
    return true;
}

/* Reads a request and writes its answer. Returns the bytes that were received and not understood as
 * part of it, or -1 if there is nothing to answer. */
static ssize_t receive(struct worker *worker, int connection) {
    size_t filled = 0, start = 0;
    long deadline = 0;
    for (;;) {
        /* Empty lines before a request do not count (RFC 9112 2.2). */
        while (filled - start >= 2 && memcmp(worker->input + start, "\r\n", 2) == 0) {
            start += 2;
        }
        size_t size = head_size(worker->input + start, filled - start);
        if (size > 0) {
            bool understood = answer_request(worker->input + start, size, worker->options->root,
                                             &worker->answer);
            return (ssize_t)(understood ? filled - start - size : filled);
        }
        if (filled == sizeof worker->input) {
            answer_refusal(431, &worker->answer);
            return (ssize_t)filled;
        }
        if (filled > 0 && now() > deadline) {
            answer_refusal(408, &worker->answer);
            return (ssize_t)filled;
        }
        ssize_t read = recv(connection, worker->input + filled, sizeof worker->input - filled, 0);
        if (read == 0) {
            return -1;
        }
        if (read > 0) {
            if (filled == 0) {
                deadline = now() + worker->options->timeout;
            }
            filled += (size_t)read;
        } else if ((errno == EAGAIN || errno == EWOULDBLOCK) && filled > 0) {
            answer_refusal(408, &worker->answer);
            return (ssize_t)filled;
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

/* Reads and sends the file by turns. */
static bool send_body(struct worker *worker, int connection) {
    struct answer *answer = &worker->answer;
    while (answer->at < answer->end) {
        off_t left = answer->end - answer->at;
        size_t most = left < BLOCK ? (size_t)left : BLOCK;
        ssize_t read = pread(answer->file, worker->block, most, answer->at);
        if (read < 0 && errno == EINTR) {
            continue;
        }
        /* A file that has become shorter ends the connection short. */
        if (read <= 0 || !send_all(connection, worker->block, (size_t)read, 0)) {
            return false;
        }
        answer->at += read;
    }
    return true;
}

/* Reads on for a moment; see LINGER. */
static void linger(struct worker *worker, int connection) {
    struct timeval wait = {.tv_sec = LINGER / 1000, .tv_usec = LINGER % 1000 * 1000};
    long deadline = now() + LINGER;
    if (shutdown(connection, SHUT_WR) != 0 ||
        setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0) {
        return;
    }
    while (now() < deadline && recv(connection, worker->block, BLOCK, 0) > 0) {
    }
}

static void serve(struct worker *worker, int connection) {
    ssize_t unread = receive(worker, connection);
    if (unread >= 0) {
        struct answer *answer = &worker->answer;
        /* MORE: the kernel waits for the body to fill the packet. */
        int flags = answer->file < 0 ? 0 : MSG_MORE;
        bool sent = send_all(connection, answer->head, answer->head_length, flags);
        if (answer->file >= 0) {
            sent = sent && send_body(worker, connection);
            close(answer->file);
        }
        if (sent && unread > 0) {
            linger(worker, connection);
        }
    }
    close(connection);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (;;) {
        serve(worker, take(worker->buffer));
    }
    return NULL;
}

/* --- The main thread -------------------------------------------------------------------------- */

static void fail(const char *what) {
    fprintf(stderr, "threadpool: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void usage(void) {
    fputs("Usage: threadpool --listen IP:PORT --root DIR [--workers N] [--queue N] "
          "[--timeout 500ms|10s|1m]\n",
          stderr);
    exit(2);
}

/* `127.0.0.1:80` or `[::1]:80`. */
static void parse_address(const char *text, struct options *options) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&options->listen;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&options->listen;
    char host[INET6_ADDRSTRLEN + 1];
    unsigned port;
    char extra;
    if (sscanf(text, "[%45[^]]]:%5u%c", host, &port, &extra) == 2 && port <= 65535 &&
        inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        options->listen_length = sizeof *v6;
    } else if (sscanf(text, "%45[^:]:%5u%c", host, &port, &extra) == 2 && port <= 65535 &&
               inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        options->listen_length = sizeof *v4;
    } else {
        usage();
    }
}

/* A number from 1 to `most`; `rest` is what follows it. */
static long parse_number(const char *text, long most, const char **rest) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || errno != 0 || value < 1 || value > most || *text < '0' || *text > '9') {
        usage();
    }
    *rest = end;
    return value;
}

static size_t parse_count(const char *text) {
    const char *rest;
    long value = parse_number(text, 100000, &rest);
    if (*rest != '\0') {
        usage();
    }
    return (size_t)value;
}

/* Milliseconds. */
static long parse_time(const char *text) {
    const char *rest;
    long value = parse_number(text, 1000000, &rest);
    if (strcmp(rest, "ms") == 0) {
        return value;
    }
    if (strcmp(rest, "s") == 0) {
        return value * 1000;
    }
    if (strcmp(rest, "m") == 0) {
        return value * 60000;
    }
    usage();
    return 0;
}

static void parse_options(int count, char **arguments, struct options *options) {
    if (count == 2 && strcmp(arguments[1], "--version") == 0) {
        puts("threadpool, compiled " __VERSION__);
        exit(0);
    }
    *options = (struct options){.root = -1, .workers = 4, .queue = 16, .timeout = 10000};
    for (int i = 1; i < count; i += 2) {
        const char *name = arguments[i];
        if (i + 1 == count) {
            usage();
        }
        const char *value = arguments[i + 1];
        if (strcmp(name, "--listen") == 0) {
            parse_address(value, options);
        } else if (strcmp(name, "--root") == 0) {
            options->root = open(value, O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (options->root < 0) {
                fail(value);
            }
        } else if (strcmp(name, "--workers") == 0) {
            options->workers = parse_count(value);
        } else if (strcmp(name, "--queue") == 0) {
            options->queue = parse_count(value);
        } else if (strcmp(name, "--timeout") == 0) {
            options->timeout = parse_time(value);
        } else {
            usage();
        }
    }
    if (options->listen_length == 0 || options->root < 0) {
        usage();
    }
}

/* What is accepted inherits the listener's options, on Linux. */
static int listen_on(const struct options *options) {
    int listener = socket(options->listen.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    struct timeval timeout = {.tv_sec = options->timeout / 1000,
                              .tv_usec = options->timeout % 1000 * 1000};
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
        setsockopt(listener, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
        bind(listener, (const struct sockaddr *)&options->listen, options->listen_length) != 0 ||
        listen(listener, BACKLOG) != 0) {
        fail("cannot listen");
    }
    return listener;
}

static void say_ready(int listener) {
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    char host[INET6_ADDRSTRLEN];
    if (getsockname(listener, (struct sockaddr *)&bound, &length) != 0) {
        fail("getsockname");
    }
    if (bound.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&bound;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        printf("ready http=[%s]:%u\n", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        printf("ready http=%s:%u\n", host, ntohs(v4->sin_port));
    }
    fflush(stdout);
}

int main(int count, char **arguments) {
    struct options options;
    parse_options(count, arguments, &options);
    int listener = listen_on(&options);

    struct shared_buffer buffer = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .filled = PTHREAD_COND_INITIALIZER,
        .freed = PTHREAD_COND_INITIALIZER,
        .connections = calloc(options.queue, sizeof *buffer.connections),
        .places = options.queue,
    };
    struct worker *workers = calloc(options.workers, sizeof *workers);
    if (buffer.connections == NULL || workers == NULL) {
        fail("memory");
    }
    for (size_t i = 0; i < options.workers; i++) {
        workers[i].buffer = &buffer;
        workers[i].options = &options;
        errno = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        if (errno != 0) {
            fail("threads");
        }
    }
    say_ready(listener);
    for (;;) {
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0) {
            insert(&buffer, connection);
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
                   errno != ECONNABORTED) {
            usleep(OUT_OF_DESCRIPTORS);
        }
    }
}
