# Shared by the measurements in this folder, which read it (`.`). It is not run by itself.

# Where the benchmarks find real media.
export HEADWATER_MEDIA="${HEADWATER_MEDIA:-$PWD/../shared/media}"

# Prints the machine and its load, in lines.
machine() {
    uname -srm
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "cores $(nproc), load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    rustc --version
    git rev-parse HEAD
}

# Processor time of a process in hundredths of a second, its own memory in KiB, and the time in seconds.
ticks() { cut -d ')' -f 2- "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
memory() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }
now() { date +%s.%N; }

# Builds the programs that HEADWATER and STREAMGAUGE do not name, and sets both.
find_programs() {
    if [ -z "${STREAMGAUGE:-}" ] || [ -z "${HEADWATER:-}" ]; then
        cargo build --release -q -p streamgauge -p headwater
    fi
    built=${CARGO_TARGET_DIR:-target}/release
    STREAMGAUGE=${STREAMGAUGE:-$built/streamgauge}
    HEADWATER=${HEADWATER:-$built/headwater}
}

# start_origin WORK [ARGUMENT...]: starts the origin with one event loop on core 0 ($server), with its log in WORK.
# Waits until it is ready, and sets $base to its URL and $rtmp to its address for RTMP.
start_origin() {
    origin_work=$1
    shift
    taskset -c 0 "$HEADWATER" serve --http 127.0.0.1:0 --rtmp 127.0.0.1:0 --webrtc 127.0.0.1:0 \
        --workers 1 "$@" > "$origin_work/ready" 2> "$origin_work/log" &
    server=$!
    until grep -q ready "$origin_work/ready"; do sleep 0.1; done
    base=$(sed -n 's/^ready http=\([^ ]*\).*/http:\/\/\1/p' "$origin_work/ready")
    rtmp=$(sed -n 's/.* rtmp=\([^ ]*\).*/\1/p' "$origin_work/ready")
}

# Prints a port of 127.0.0.1 on which nobody listens.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_nginx PORT ROOT WORK: starts nginx on core 0, in one process ($nginx_pid), for the files
# below ROOT.
start_nginx() {
    mkdir -p "$3/temporary"
    # The same settings as in lab/peers/nginx.toml, which gives the reasons.
    cat > "$3/nginx.conf" <<NGINX
daemon off; master_process off; pid $3/nginx.pid; error_log $3/nginx.log;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush off; keepalive_requests 1000000000;
    open_file_cache max=100;
    client_body_temp_path $3/temporary; proxy_temp_path $3/temporary;
    fastcgi_temp_path $3/temporary; uwsgi_temp_path $3/temporary; scgi_temp_path $3/temporary;
    server { listen 127.0.0.1:$1; root $2; }
}
NGINX
    taskset -c 0 nginx -e "$3/nginx.log" -p "$3" -c "$3/nginx.conf" &
    nginx_pid=$!
    until curl -s -o /dev/null "http://127.0.0.1:$1/"; do
        kill -0 "$nginx_pid"
        sleep 0.1
    done
}
