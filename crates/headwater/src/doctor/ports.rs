//! Whether the listeners of the configuration can be bound, and who has the port if not.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

use super::{Check, Machine};
use crate::config::Config;

/// A listener of the configuration.
#[derive(Debug, Clone, Copy)]
struct Listener {
    key: &'static str,
    address: SocketAddr,
    is_tcp: bool,
    /// What the server does if it cannot be bound, where it starts nevertheless.
    without: Option<&'static str>,
}

pub(super) fn check(machine: &Machine, config: &Config) -> Vec<Check> {
    let check = |listener| judge(listener, try_to_bind(listener), machine);
    listeners(config).into_iter().map(check).collect()
}

/// The same listeners as `serve` binds.
fn listeners(config: &Config) -> Vec<Listener> {
    let Config { http, rtmp, webrtc, control, .. } = config;
    let tcp = |key, address| Listener { key, address, is_tcp: true, without: None };
    let mut listeners = vec![tcp("http.listen", http.listen)];
    if http.tls.is_enabled() {
        listeners.push(tcp("http.tls.listen", http.tls.listen));
    }
    listeners.push(tcp("rtmp.listen", rtmp.listen));
    if rtmp.tls.enabled {
        listeners.push(tcp("rtmp.tls.listen", rtmp.tls.listen));
    }
    if webrtc.enabled {
        let without = webrtc.is_by_default().then_some("The server runs without WebRTC");
        for is_tcp in [false, true].into_iter().take(1 + usize::from(webrtc.tcp)) {
            let (key, address) = ("webrtc.listen", webrtc.listen);
            listeners.push(Listener { key, address, is_tcp, without });
        }
    }
    let without =
        "Dashboard, API and metrics are at http.listen only, for addresses of control.admin";
    let without = control.is_by_default().then_some(without);
    listeners.push(Listener { without, ..tcp("control.listen", control.listen) });
    listeners
}

/// Binds as the server does, and lets go. Nobody can connect meanwhile: nothing listens.
fn try_to_bind(listener: Listener) -> io::Result<()> {
    let kind =
        if listener.is_tcp { (Type::STREAM, Protocol::TCP) } else { (Type::DGRAM, Protocol::UDP) };
    let socket = Socket::new(Domain::for_address(listener.address), kind.0, Some(kind.1))?;
    if listener.is_tcp {
        // A listener of another process still keeps its port.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&listener.address.into())
}

fn judge(listener: Listener, bound: io::Result<()>, machine: &Machine) -> Check {
    let Listener { key, address, is_tcp, without } = listener;
    let port = address.port();
    let protocol = if is_tcp { "TCP" } else { "UDP" };
    let Err(error) = bound else {
        return Check::ok(key, format!("{address} is free ({protocol})"));
    };
    let starts = without.unwrap_or("The server does not start");
    let bad = |found: String, remedy: &str| {
        let make = if without.is_some() { Check::warning } else { Check::problem };
        make(key, found, starts, remedy)
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => match holder(machine, is_tcp, port) {
            Some((pid, name)) if name == "headwater" => {
                let found = format!("{address} is used by headwater itself, process {pid}");
                Check::ok(key, format!("{found} ({protocol})"))
            }
            Some((pid, name)) => {
                let found = format!("{address} is used by {name}, process {pid} ({protocol})");
                bad(found, &format!("another port for {key}, or the end of {name}"))
            }
            None => {
                let option = if is_tcp { 't' } else { 'u' };
                let who = format!("`ss -l{option}np sport = :{port}` as root tells by whom");
                bad(
                    format!("{address} is in use ({protocol})"),
                    &format!("{who}; another port for {key}"),
                )
            }
        },
        io::ErrorKind::PermissionDenied => bad(
            format!("{address} is for root ({protocol})"),
            "AmbientCapabilities=CAP_NET_BIND_SERVICE in the service's unit, `setcap \
             cap_net_bind_service=+ep` of the program, or a port of at least \
             net.ipv4.ip_unprivileged_port_start",
        ),
        io::ErrorKind::AddrNotAvailable => bad(
            format!("{address} is not an address of this machine"),
            &format!("{key} = \"0.0.0.0:{port}\" for all its addresses; `ip addr` lists them"),
        ),
        _ => bad(format!("{address}: {error} ({protocol})"), &format!("another address for {key}")),
    }
}

/// The process that has a port, if this user may know.
fn holder(machine: &Machine, is_tcp: bool, port: u16) -> Option<(u32, String)> {
    let tables = if is_tcp { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    let tables = tables.map(|table| machine.text(&format!("proc/self/net/{table}")));
    let sockets: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines())
        .filter_map(|line| holds(line, is_tcp, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = std::fs::read_dir(machine.root.join("proc")).ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        has_one_of(&process.path().join("fd"), &sockets).then_some(())?;
        Some((pid, machine.text(&format!("proc/{pid}/comm"))?))
    })
}

/// The inode of the socket in a line of the kernel's table, if that has the port and no peer.
fn holds(line: &str, is_tcp: bool, port: u16) -> Option<&str> {
    /// TCP's state of a listener.
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, hex) = fields.get(1)?.rsplit_once(':')?;
    let is_it =
        u16::from_str_radix(hex, 16) == Ok(port) && (!is_tcp || fields.get(3) == Some(&LISTENS));
    fields.get(9).copied().filter(|_| is_it)
}

fn has_one_of(descriptors: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(descriptors) else { return false };
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets
        .into_iter()
        .any(|target| sockets.iter().any(|socket| target.as_os_str() == OsStr::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    const HTTP: Listener = Listener {
        key: "http.listen",
        address: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 8080),
        is_tcp: true,
        without: None,
    };

    #[test]
    fn listeners_are_those_of_the_configuration() {
        let keys = |config: &Config| listeners(config).iter().map(|it| it.key).collect::<Vec<_>>();
        let mut config = Config::default();
        let plain =
            ["http.listen", "rtmp.listen", "webrtc.listen", "webrtc.listen", "control.listen"];
        assert_eq!(keys(&config), plain);
        config.webrtc.tcp = false;
        config.rtmp.tls.enabled = true;
        config.http.tls.certificate = "a".into();
        let all = [
            "http.listen",
            "http.tls.listen",
            "rtmp.listen",
            "rtmp.tls.listen",
            "webrtc.listen",
            "control.listen",
        ];
        assert_eq!(keys(&config), all);
        config.webrtc.enabled = false;
        assert_eq!(keys(&config), [&all[..4], &all[5..]].concat());
    }

    #[test]
    fn a_port_that_another_program_has_is_a_problem_and_its_holder_is_named() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n   \
             1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n";
        let in_use = || Err(io::ErrorKind::AddrInUse.into());
        for (program, level) in [("nginx", Level::Problem), ("headwater", Level::Ok)] {
            let name = format!("{program}\n");
            let (folder, machine) =
                machine(&[("proc/self/net/tcp", table), ("proc/7/comm", &name)]);
            let descriptors = folder.path().join("proc/7/fd");
            std::fs::create_dir(&descriptors).unwrap();
            std::os::unix::fs::symlink("socket:[4711]", descriptors.join("3")).unwrap();
            let check = judge(HTTP, in_use(), &machine);
            assert_eq!(check.level, level, "{check}");
            assert!(check.found.contains(program) && check.found.contains("process 7"), "{check}");
        }
        // Nobody may be told whose it is.
        let (_folder, machine) = machine(&[("proc/self/net/tcp", table)]);
        let check = judge(HTTP, in_use(), &machine);
        assert_eq!(check.level, Level::Problem);
        assert!(check.remedy.unwrap().starts_with("`ss -ltnp sport = :8080`"));
    }

    #[test]
    fn other_reasons_have_other_remedies_and_a_default_port_may_be_taken() {
        let (_folder, machine) = machine(&[]);
        let remedy = |listener, kind: io::ErrorKind| {
            let check = judge(listener, Err(kind.into()), &machine);
            (check.level, check.remedy.unwrap())
        };
        let (level, text) = remedy(HTTP, io::ErrorKind::PermissionDenied);
        assert_eq!((level, text.contains("CAP_NET_BIND_SERVICE")), (Level::Problem, true));
        let (level, text) = remedy(HTTP, io::ErrorKind::AddrNotAvailable);
        assert_eq!((level, text.contains("0.0.0.0:8080")), (Level::Problem, true));
        let webrtc = Listener { without: Some("It runs"), is_tcp: false, ..HTTP };
        let (level, text) = remedy(webrtc, io::ErrorKind::AddrInUse);
        assert_eq!((level, text.starts_with("`ss -lunp ")), (Level::Warning, true));
    }
}
