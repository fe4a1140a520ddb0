#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 9999-12-31, the last day that an HTTP date can name. */
#define LAST_DATE 253402300799

/* A date that is none, or none that HTTP can name. */
#define NO_DATE ((time_t)-1)

/* What a head asks for. The texts are within it. */
struct request {
    bool head_only;
    char *path;
    const char *range;
    bool has_if_range;
    time_t if_range;
    time_t modified_since;
};

/* --- Reading ---------------------------------------------------------------------------------- */

size_t head_size(const char *input, size_t length) {
    const char *end = memmem(input, length, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - input) + 4;
}

/* A character of a token (RFC 9110 5.6.2). */
static bool is_token(char c) {
    return c != '\0' && (isalnum((unsigned char)c) || strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool all_digits(const char *text) {
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    for (char *end = text + strlen(text); end > text && (end[-1] == ' ' || end[-1] == '\t');) {
        *--end = '\0';
    }
    return text;
}

/* The three forms of a date (RFC 9110 5.6.7). */
static time_t parse_date(const char *text) {
    const char *forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                           "%a %b %e %H:%M:%S %Y"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm parts = {0};
        const char *end = strptime(text, forms[i], &parts);
        if (end != NULL && *end == '\0') {
            return timegm(&parts);
        }
    }
    return NO_DATE;
}

/* The path of a target in origin form or absolute form, without its query; NULL if it is neither. */
static char *path_of(char *target) {
    if (*target != '/') {
        if (strncasecmp(target, "http://", 7) != 0) {
            return NULL;
        }
        char *path = strchr(target + 7, '/');
        if (path == NULL) {
            /* An authority alone stands for the root; there is room for that in its place. */
            return strcpy(target, "/");
        }
        target = path;
    }
    target[strcspn(target, "?")] = '\0';
    return target;
}

/* The value of two hexadecimal digits, or -1. */
static int hexadecimal(const char *digits) {
    if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1])) {
        return -1;
    }
    const char pair[] = {digits[0], digits[1], '\0'};
    return (int)strtol(pair, NULL, 16);
}

/* Decodes a path once, in place, and makes it relative. Returns 0 or the status of a refusal. */
static int decode(char **path) {
    char *to = *path;
    for (const char *from = *path; *from != '\0'; from++) {
        int byte = (unsigned char)*from;
        if (byte == '%') {
            byte = hexadecimal(from + 1);
            if (byte < 0) {
                return 400;
            }
            if (byte == '/') {
                return 404;
            }
            from += 2;
        }
        if (byte == '\\' || byte < ' ' || byte == 0x7f) {
            return 404;
        }
        *to++ = (char)byte;
    }
    *to = '\0';
    for (const char *segment = *path; segment != NULL;) {
        size_t length = strcspn(segment, "/");
        if ((length == 1 || length == 2) && strncmp(segment, "..", length) == 0) {
            return 404;
        }
        segment = segment[length] == '/' ? segment + length + 1 : NULL;
    }
    *path += strspn(*path, "/");
    return 0;
}

/* Reads a head. Returns 0 or the status of a refusal. */
static int read_request(char *head, size_t size, struct request *request) {
    *request = (struct request){.modified_since = NO_DATE, .if_range = NO_DATE};
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)head[i];
        if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f) {
            return 400;
        }
    }
    /* The last line is empty and ends the loop below; it is not needed as text. */
    head[size - 2] = '\0';

    char *next = head;
    char *line = next;
    next = strstr(line, "\r\n");
    *next = '\0';
    next += 2;
    if (strchr(line, '\r') != NULL || strchr(line, '\n') != NULL) {
        return 400;
    }
    char *target = strchr(line, ' ');
    if (target == NULL || target == line) {
        return 400;
    }
    *target++ = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if (!is_token(*c)) {
            return 400;
        }
    }
    char *version = strchr(target, ' ');
    if (version == NULL) {
        return 400;
    }
    *version++ = '\0';
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        return 400;
    }

    int fields = 0, hosts = 0;
    bool chunked = false, tagged = false;
    const char *content_length = NULL;
    while (*next != '\0') {
        char *field = next;
        char *end = strstr(field, "\r\n");
        *end = '\0';
        next = end + 2;
        if (++fields > MAX_FIELDS) {
            return 431;
        }
        char *value = strchr(field, ':');
        if (value == NULL || value == field || strchr(field, '\r') != NULL ||
            strchr(field, '\n') != NULL) {
            return 400;
        }
        *value++ = '\0';
        for (const char *c = field; *c != '\0'; c++) {
            if (!is_token(*c)) {
                return 400;
            }
        }
        value = trim(value);
        if (strcasecmp(field, "Host") == 0) {
            hosts++;
        } else if (strcasecmp(field, "Transfer-Encoding") == 0) {
            chunked = true;
        } else if (strcasecmp(field, "Content-Length") == 0) {
            if (!all_digits(value) ||
                (content_length != NULL && strcmp(content_length, value) != 0)) {
                return 400;
            }
            content_length = value;
        } else if (strcasecmp(field, "Range") == 0 && request->range == NULL) {
            request->range = value;
        } else if (strcasecmp(field, "If-Range") == 0) {
            request->has_if_range = true;
            request->if_range = parse_date(value);
        } else if (strcasecmp(field, "If-Modified-Since") == 0) {
            request->modified_since = parse_date(value);
        } else if (strcasecmp(field, "If-None-Match") == 0) {
            tagged = true;
        }
    }

    request->head_only = strcmp(line, "HEAD") == 0;
    bool known = request->head_only || strcmp(line, "GET") == 0;
    if (hosts > 1 || (chunked && (known || content_length != NULL))) {
        return 400;
    }
    request->path = path_of(target);
    if (request->path == NULL) {
        return 400;
    }
    int refused = decode(&request->path);
    if (refused != 0) {
        return refused;
    }
    if (!known) {
        return 405;
    }
    if (request->head_only) {
        request->range = NULL;
    }
    if (tagged) {
        request->modified_since = NO_DATE;
    }
    return 0;
}

/* Reads digits; a number larger than any file counts as the largest. False if there are none. */
static bool number(const char **text, off_t *value) {
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0) {
        return false;
    }
    errno = 0;
    long long read = strtoll(*text, NULL, 10);
    *value = errno == ERANGE ? INT64_MAX - 1 : (off_t)read;
    *text += digits;
    return true;
}

/* Narrows 0..length to the range that `field` selects. Returns 200 (the field does not count), 206
 * or 416. */
static int select_range(const char *field, off_t length, off_t *at, off_t *end) {
    off_t first = 0, last = 0;
    while (*field == ' ' || *field == '\t') {
        field++;
    }
    if (strncasecmp(field, "bytes", 5) != 0) {
        return 200;
    }
    field += 5;
    field += strspn(field, " \t");
    if (*field++ != '=') {
        return 200;
    }
    field += strspn(field, " \t");
    bool has_first = number(&field, &first);
    if (*field++ != '-') {
        return 200;
    }
    bool has_last = number(&field, &last);
    if (*field != '\0' || (!has_first && !has_last) || (has_first && has_last && first > last)) {
        return 200;
    }
    if (!has_first) {
        if (length == 0 && last > 0) {
            return 200;
        }
        *at = last < length ? length - last : 0;
        *end = length;
    } else {
        *at = first;
        *end = has_last && last < length ? last + 1 : length;
    }
    return *at < *end ? 206 : 416;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 416: return "Range Not Satisfiable";
    case 431: return "Request Header Fields Too Large";
    default: return "Service Unavailable";
    }
}

static const char *refusal(int status) {
    switch (status) {
    case 400: return "malformed request\n";
    case 404: return "no such file\n";
    case 405: return "only GET and HEAD\n";
    case 408: return "the request took too long\n";
    case 431: return "the request's head is too large\n";
    default: return "too many open files\n";
    }
}

/* The media type of a file, by the end of its name. */
static const char *media_type(const char *path) {
    static const struct {
        const char *extension, *type;
    } types[] = {
        {"mp4", "video/mp4"},
        {"m4v", "video/mp4"},
        {"m4a", "audio/mp4"},
        {"m4s", "video/iso.segment"},
        {"ts", "video/mp2t"},
        {"flv", "video/x-flv"},
        {"webm", "video/webm"},
        {"m3u8", "application/vnd.apple.mpegurl"},
        {"mpd", "application/dash+xml"},
        {"html", "text/html; charset=utf-8"},
        {"css", "text/css; charset=utf-8"},
        {"js", "text/javascript; charset=utf-8"},
        {"txt", "text/plain; charset=utf-8"},
        {"json", "application/json"},
        {"jpg", "image/jpeg"},
        {"jpeg", "image/jpeg"},
        {"png", "image/png"},
    };
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    const char *dot = strrchr(name, '.');
    if (dot != NULL && dot != name) {
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            if (strcasecmp(dot + 1, types[i].extension) == 0) {
                return types[i].type;
            }
        }
    }
    return "application/octet-stream";
}

/* Appends to the head. What is written is known to fit into MAX_ANSWER: no part of it is as long as
 * its sender likes. */
__attribute__((format(printf, 2, 3)))
static void put(struct answer *answer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof answer->head - answer->head_length;
    int written = vsnprintf(answer->head + answer->head_length, room, format, arguments);
    va_end(arguments);
    if (written > 0) {
        size_t length = (size_t)written;
        answer->head_length += length < room ? length : room - 1;
    }
}

static void put_date(struct answer *answer, const char *name, time_t date) {
    struct tm parts;
    char text[64];
    if (gmtime_r(&date, &parts) != NULL &&
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts) != 0) {
        put(answer, "%s: %s\r\n", name, text);
    }
}

static void begin(struct answer *answer, int status) {
    answer->head_length = 0;
    answer->file = -1;
    answer->at = answer->end = 0;
    put(answer, "HTTP/1.1 %d %s\r\n", status, reason(status));
    put_date(answer, "Date", time(NULL));
}

static void put_refusal(struct answer *answer, int status, bool head_only) {
    const char *text = refusal(status);
    begin(answer, status);
    if (status == 405) {
        put(answer, "Allow: GET, HEAD\r\n");
    }
    put(answer, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n", strlen(text));
    put(answer, "Connection: close\r\n\r\n%s", head_only ? "" : text);
}

void answer_refusal(int status, struct answer *answer) {
    put_refusal(answer, status, false);
}

/* Opens a regular file below the root, which the kernel does not let the path leave. */
static int open_file(int root, const char *path, struct stat *about) {
    struct open_how how = {
        /* NONBLOCK: a FIFO with nobody at its other end must not hold the thread. */
        .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    int file = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (file < 0) {
        return -1;
    }
    if (fstat(file, about) != 0 || !S_ISREG(about->st_mode)) {
        close(file);
        errno = ENOENT;
        return -1;
    }
    return file;
}

bool answer_request(char *head, size_t size, int root, struct answer *answer) {
    struct request request;
    int refused = read_request(head, size, &request);
    if (refused != 0) {
        put_refusal(answer, refused, false);
        return false;
    }
    /* `index.html` stands for a folder. */
    char path[MAX_HEAD + sizeof "index.html"];
    size_t length = strlen(request.path);
    bool folder = length == 0 || request.path[length - 1] == '/';
    snprintf(path, sizeof path, "%s%s", request.path, folder ? "index.html" : "");

    struct stat about;
    int file = open_file(root, path, &about);
    if (file < 0) {
        put_refusal(answer, errno == EMFILE || errno == ENFILE ? 503 : 404, request.head_only);
        return true;
    }
    time_t modified = about.st_mtim.tv_sec;
    if (modified < 0 || modified > LAST_DATE) {
        modified = NO_DATE;
    }
    off_t at = 0, end = about.st_size;
    int status = 200;
    if (modified != NO_DATE && request.modified_since != NO_DATE &&
        modified <= request.modified_since) {
        status = 304;
    } else if (request.range != NULL &&
               (!request.has_if_range ||
                (request.if_range != NO_DATE && request.if_range == modified))) {
        status = select_range(request.range, about.st_size, &at, &end);
    }
    begin(answer, status);
    if (modified != NO_DATE) {
        put_date(answer, "Last-Modified", modified);
    }
    if (status == 416) {
        put(answer, "Content-Range: bytes */%jd\r\nContent-Length: 0\r\n", (intmax_t)about.st_size);
    } else if (status != 304) {
        put(answer, "Content-Type: %s\r\nAccept-Ranges: bytes\r\n", media_type(path));
        if (status == 206) {
            put(answer, "Content-Range: bytes %jd-%jd/%jd\r\n", (intmax_t)at, (intmax_t)end - 1,
                (intmax_t)about.st_size);
        }
        put(answer, "Content-Length: %jd\r\n", (intmax_t)(end - at));
    }
    put(answer, "Connection: close\r\n\r\n");
    bool sends = (status == 200 || status == 206) && !request.head_only && at < end;
    if (sends) {
        answer->file = file;
        answer->at = at;
        answer->end = end;
    } else {
        close(file);
    }
    return true;
}
