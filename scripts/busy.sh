# Sourced by scripts that run tests. With BUSY=1, a loop at normal priority keeps each processor busy
# until the script ends: tests must hold on a machine that has other work too.
#
# `busy_begin` starts the loops, and `busy_end` ends them. The script calls `busy_end` when it exits.

busy=
busy_begin() {
    [ "${BUSY:-0}" = 1 ] || return 0
    for _ in $(seq "$(nproc)"); do
        (while :; do :; done) &
        busy="$busy $!"
    done
    echo "beside the tests: a busy loop on each of $(nproc) processors"
}
busy_end() {
    # The words are process ids, so splitting is intended.
    # shellcheck disable=SC2086
    [ -z "$busy" ] || kill $busy 2>/dev/null
    busy=
}
