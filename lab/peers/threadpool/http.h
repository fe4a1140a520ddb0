/* HTTP/1.1 as far as it is not the architecture's subject: what a head asks for, which file that
 * is, and the head of the answer. It decides as crates/baselines/src/http does. */

#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The longest head, in bytes. */
#define MAX_HEAD 8192

/* Header fields a head may have. */
#define MAX_FIELDS 100

/* Room for the head of any answer, a refusal's sentence included. */
#define MAX_ANSWER 1024

/* What is to be sent. */
struct answer {
    char head[MAX_ANSWER];
    size_t head_length;
    /* The file whose bytes from `at` to `end` follow the head, or -1. The caller closes it. */
    int file;
    off_t at, end;
};

/* Bytes of the request head at the front of `input`, 0 while it is not complete. */
size_t head_size(const char *input, size_t length);

/* Writes the answer to a complete head, which is changed on the way. `root` is a descriptor of the
 * folder that is served. False if the head is refused: what follows it is in doubt. */
bool answer_request(char *head, size_t size, int root, struct answer *answer);

/* Writes a refusal: 408 or 431, which are given before a head is complete. */
void answer_refusal(int status, struct answer *answer);

#endif
