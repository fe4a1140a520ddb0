use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Port, Program, eventually};

/// How long a server may take to start, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// NATS servers with JetStream, which `scripts/nats.sh` installs: one, or several that are a cluster.
#[derive(Debug)]
pub struct Nats {
    folder: tempfile::TempDir,
    servers: Vec<NatsServer>,
    /// Whom the servers let in, as text of their configuration.
    access: String,
}

#[derive(Debug)]
struct NatsServer {
    clients: Port,
    /// Where the other servers connect to.
    routes: Port,
    program: Option<Program>,
}

fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats/bin/nats-server");
    assert!(binary.is_file(), "no NATS server: scripts/nats.sh installs it");
    binary
}

impl Nats {
    /// Starts one server.
    ///
    /// # Panics
    /// The server is not installed or does not start.
    pub fn start() -> Self {
        Self::start_cluster(1)
    }

    /// Starts one server that lets in only the users that this text of its configuration names.
    ///
    /// # Panics
    /// The server is not installed or does not start.
    pub fn start_guarded(access: &str) -> Self {
        Self::begin(1, access)
    }

    /// Starts a cluster of `count` servers. JetStream may have no leader yet when this returns.
    ///
    /// # Panics
    /// The server is not installed or does not start.
    pub fn start_cluster(count: usize) -> Self {
        Self::begin(count, "")
    }

    fn begin(count: usize, access: &str) -> Self {
        let server = || NatsServer { clients: Port::find(), routes: Port::find(), program: None };
        let servers = (0..count).map(|_| server()).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut nats = Self { folder, servers, access: access.to_owned() };
        for server in 0..count {
            nats.run(server);
        }
        nats
    }

    /// Lets a server send its clients away, one after the other, and end ("lame duck").
    ///
    /// # Panics
    /// The server does not run.
    pub fn send_away(&self, server: usize) {
        let signal = format!("ldm={}", self.program(server).id());
        let sent = Command::new(binary()).args(["--signal", &signal]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no signal to the server");
    }

    /// Starts a server that was killed. What it held in memory is lost, what it held in files is not.
    ///
    /// # Panics
    /// The server does not start.
    pub fn run(&mut self, server: usize) {
        let name = format!("n{server}");
        let clients = self.servers[server].clients.number();
        let mut command = Command::new(binary());
        command.args(["--addr", "127.0.0.1", "--port", &clients.to_string()]);
        command.args(["--jetstream", "--server_name", &name, "--store_dir"]);
        command.arg(self.folder.path().join(&name));
        if !self.access.is_empty() {
            let configuration = self.folder.path().join("access.conf");
            std::fs::write(&configuration, &self.access).expect("the folder is ours");
            command.arg("--config").arg(configuration);
        }
        if self.servers.len() > 1 {
            let route = |server: &NatsServer| format!("nats://127.0.0.1:{}", server.routes);
            let routes: Vec<_> = self.servers.iter().map(route).collect();
            command.args(["--cluster_name", "test", "--cluster", &routes[server]]);
            // Clients know only the servers that a test tells them.
            command.args(["--no_advertise", "--routes", &routes.join(",")]);
        }
        self.servers[server].program = Some(Program::spawn(&mut command));
        let address = (Ipv4Addr::LOCALHOST, clients);
        eventually(LIMIT, "NATS listens", || TcpStream::connect(address).is_ok());
    }

    /// Kills a server.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].program = None;
    }

    /// The process of a server that runs.
    ///
    /// # Panics
    /// The server was killed.
    pub fn program(&self, server: usize) -> &Program {
        self.servers[server].program.as_ref().expect("the server runs")
    }

    /// The address of a server, as clients write it.
    pub fn url(&self, server: usize) -> String {
        format!("nats://127.0.0.1:{}", self.servers[server].clients)
    }

    /// The addresses of all servers.
    pub fn urls(&self) -> Vec<String> {
        (0..self.servers.len()).map(|server| self.url(server)).collect()
    }
}
