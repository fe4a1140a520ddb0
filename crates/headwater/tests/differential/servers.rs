//! headwater and nginx, which serve the same folder of files.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

use testkit::{Program, Server};

use crate::exchange::{LIMIT, Socket};

/// Modification time of every file: 2020-01-02 03:04:05 UTC.
pub(crate) const MODIFIED: Duration = Duration::from_secs(1_577_934_245);

/// Defaults with two exceptions: dates are compared as in RFC 9110 13.1.3, and connections are
/// closed so that no answer is lost.
const NGINX: &str = r"
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    default_type application/octet-stream;
    client_header_buffer_size 8k;
    large_client_header_buffers 4 8k;
    if_modified_since before;
    lingering_close always;
    server {
        listen unix:nginx.sock;
        location / { return 404; }
        location /vod/ { alias media/; }
    }
}
";

pub(crate) struct Servers {
    headwater: Server,
    _nginx: Program,
    socket: PathBuf,
    /// The entity tag of `file.bin` from headwater and from nginx.
    pub(crate) tags: (String, String),
}

impl Servers {
    pub(crate) fn start(files: &[(&str, Vec<u8>)]) -> Self {
        let headwater = Server::start(env!("CARGO_BIN_EXE_headwater"), ["--workers", "1"]);
        let folder = headwater.folder();
        for (name, bytes) in files {
            let path = folder.join("media").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = File::create(path).unwrap();
            file.write_all(bytes).unwrap();
            file.set_modified(UNIX_EPOCH + MODIFIED).unwrap();
        }
        let folder_of =
            |text: &str| text.replace("media/", &format!("{}/media/", folder.display()));
        let socket = folder.join("nginx.sock");
        let config = folder_of(NGINX).replace("nginx.sock", &socket.display().to_string());
        std::fs::write(folder.join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder).args(["-e", "stderr", "-c", "nginx.conf"]);
        let mut nginx = Program::spawn(&mut command);
        let deadline = Instant::now() + LIMIT;
        while UnixStream::connect(&socket).is_err() {
            assert!(nginx.is_running() && Instant::now() < deadline, "{}", nginx.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut servers =
            Self { headwater, _nginx: nginx, socket, tags: (String::new(), String::new()) };
        servers.tags = (tag(servers.headwater()), tag(servers.nginx()));
        servers
    }

    pub(crate) fn headwater(&self) -> Box<dyn Socket> {
        let socket = TcpStream::connect(self.headwater.http).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        Box::new(socket)
    }

    pub(crate) fn nginx(&self) -> Box<dyn Socket> {
        let socket = UnixStream::connect(&self.socket).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        Box::new(socket)
    }
}

/// The entity tag of `file.bin`, without its quotes.
fn tag(mut socket: Box<dyn Socket>) -> String {
    socket.write_all(b"HEAD /vod/file.bin HTTP/1.0\r\n\r\n").unwrap();
    let mut head = String::new();
    socket.read_to_string(&mut head).unwrap();
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: \"")?.strip_suffix('"'));
    tag.unwrap_or_else(|| panic!("no ETag: {head}")).to_owned()
}
