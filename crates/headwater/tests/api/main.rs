//! The document of the API. Programs of other hands judge it, and real answers by it.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod metrics;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::http::{Client, Head, Response};
use testkit::{NO_ARGUMENTS, Nats, Program, Server, demo_clip, eventually, rtmp};

/// A time limit for anything that a test waits for, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// The answers of servers, and what in the document each belongs to.
#[derive(Default)]
struct Answers(Vec<Value>);

impl Answers {
    /// Asks `server` for a path. `documented` is the path in the document.
    fn ask(
        &mut self,
        server: &Server,
        (method, path, documented): (&str, &str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut client = Client::connect(server.operators(), LIMIT).unwrap();
        let answer = client.ask(method, path, headers, body.as_bytes());
        self.add((method, documented), &answer.head, answer.text());
        answer
    }

    fn add(&mut self, (method, documented): (&str, &str), head: &Head, body: &str) {
        let told = head.headers.iter();
        let told: BTreeMap<_, _> =
            told.map(|(name, value)| (name.to_lowercase(), value.as_str())).collect();
        self.0.push(json!({
            "method": method.to_lowercase(), "path": documented, "status": head.status,
            "headers": told, "body": body,
        }));
    }

    /// Sends a GET for a path that has no parameters.
    fn get(&mut self, server: &Server, path: &str) -> Response {
        self.ask(server, ("GET", path, path), &[], "")
    }

    /// Each method of each path in the document must have been asked for.
    fn assert_complete(&self, document: &Value) {
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                let asked = |it: &Value| it["path"] == **path && it["method"] == **method;
                assert!(self.0.iter().any(asked), "{method} {path} was never asked for");
            }
        }
    }

    /// Lets other hands' programs judge the document, and all answers by it.
    fn judge(self, document: &Value) {
        let folder = tempfile::tempdir().unwrap();
        let files = [("document", document), ("answers", &Value::Array(self.0))];
        let files = files.map(|(name, value)| {
            let file = folder.path().join(name);
            std::fs::write(&file, value.to_string()).unwrap();
            file
        });
        let judged = Program::spawn(python("check.py").args(files)).wait(LIMIT);
        let wrong = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success(), "{wrong}{}", judged.stderr);
    }
}

/// A script beside this file, with the programs of others that `scripts/openapi.sh` installs.
fn python(script: &str) -> Command {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = home.join("../../target/openapi/bin/python");
    assert!(python.is_file(), "no openapi-spec-validator: scripts/openapi.sh installs it");
    let mut command = Command::new(python);
    command.arg(home.join("tests/api").join(script));
    command
}

/// Starts a node of a cluster.
fn node(nats: &Nats, name: &str, arguments: &[&str]) -> Server {
    let cluster =
        format!("[cluster]\nnats = {:?}\nnode = \"{name}\"\nzone = \"eu\"\n", nats.urls());
    Server::configured(BINARY, &cluster, arguments)
}

/// Watches `live/demo` by HTTP-FLV as long as the server runs.
fn watch(server: &Server) {
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let mut viewer = Client::connect(server.http, 10 * LIMIT).unwrap();
    viewer.send("GET", "/live/demo/live.flv", &[], b"").unwrap();
    thread::spawn(move || {
        let (_, mut body) = viewer.begin().unwrap();
        // It ends with an error, as the server does not wait for it.
        let _ = io::copy(&mut body, &mut io::sink());
    });
}

/// Asks for sessions in all ways, and ends one.
fn sessions(answers: &mut Answers, server: &Server) {
    let path = "/api/v1/sessions";
    for (query, status) in [
        ("", 200),
        ("?ended=true", 200),
        ("?stream=live/demo&action=play&protocol=flv&after=0", 200),
        ("?action=watch", 400),
        ("?after=-1", 400),
    ] {
        let whole = format!("{path}{query}");
        let answer = answers.ask(server, ("GET", &whole, path), &[], "");
        assert_eq!(answer.status(), status, "{query}: {}", answer.text());
    }
    let at = server.operators();
    let publishers = testkit::http::get(at, &format!("{path}?stream=live/x"));
    let publishers: Value = serde_json::from_slice(&publishers.body).unwrap();
    let id = &publishers["sessions"][1]["id"];
    let documented = "/api/v1/sessions/{id}";
    let one = format!("{path}/{id}");
    assert_eq!(answers.ask(server, ("DELETE", &one, documented), &[], "").status(), 204);
    let listed = || testkit::http::get(at, path).text().contains(&format!("\"id\":{id},"));
    eventually(LIMIT, "it is over", || !listed());
    let none = format!("{path}/0");
    assert_eq!(answers.ask(server, ("DELETE", &none, documented), &[], "").status(), 404);
}

/// Asks for titles in all ways. There is `film.mp4`.
fn titles(answers: &mut Answers, server: &Server) {
    let (list, single) = ("/api/v1/titles", "/api/v1/titles/{path}");
    let poster = "/api/v1/posters/{path}";
    server.put("broken.mp4", b"no film");
    for (path, documented, status) in [
        (list, list, 200),
        ("/api/v1/titles?folder=vod&after=b", list, 200),
        ("/api/v1/titles?folder=vod/none", list, 404),
        ("/api/v1/titles?after=a&after=b", list, 400),
        ("/api/v1/titles/vod/film.mp4", single, 200),
        ("/api/v1/titles/vod/broken.mp4", single, 200),
        ("/api/v1/titles/vod/none.mp4", single, 404),
        (list, list, 200),
        ("/api/v1/posters/vod/broken.mp4", poster, 404),
    ] {
        let answer = answers.ask(server, ("GET", path, documented), &[], "");
        assert_eq!(answer.status(), status, "{path}: {}", answer.text());
    }
    // The picture itself is no text.
    let film = "/api/v1/posters/vod/film.mp4";
    let picture = testkit::http::get(server.operators(), film);
    let has_it = [("If-None-Match", picture.header("etag").unwrap())];
    assert_eq!(answers.ask(server, ("GET", film, poster), &has_it, "").status(), 304);
}

const STREAM: &str = "/api/v1/streams/live/{name}";
const WHIP: &str = "/live/{name}/whip";
const WHEP: &str = "/live/{name}/whep";
const SDP: (&str, &str) = ("Content-Type", "application/sdp");
const FRAGMENT: (&str, &str) = ("Content-Type", "application/trickle-ice-sdpfrag");

/// Begins and ends a session of WHIP or WHEP, and makes mistakes.
fn signal(answers: &mut Answers, server: &Server, document: &Value, (stream, path): (&str, &str)) {
    let bodies = &document["components"]["requestBodies"];
    let offer = bodies["Offer"]["content"]["application/sdp"]["example"].as_str().unwrap();
    let fragment = bodies["Fragment"]["content"][FRAGMENT.1]["example"].as_str().unwrap();
    let resource = path.replace("{name}", stream);
    let begin = ("POST", resource.as_str(), path);
    let begun = answers.ask(server, begin, &[SDP], offer);
    assert_eq!(begun.status(), 201, "{}", begun.text());
    let other = offer.replace("H264", "VP8");
    for (offer, headers, status) in [
        ("hello", &[SDP][..], 400),
        (offer, &[], 415),
        (other.as_str(), &[SDP], 406),
        (&"x".repeat(100_000), &[SDP], 413),
    ] {
        assert_eq!(answers.ask(server, begin, headers, offer).status(), status);
    }
    assert_eq!(answers.ask(server, ("OPTIONS", &resource, path), &[], "").status(), 204);

    let documented = format!("{path}/{{session}}");
    let session = begun.header("location").unwrap();
    let tag = begun.header("etag").unwrap();
    let restart = fragment.replace("ice-ufrag:peer", "ice-ufrag:other");
    for (fragment, headers, status) in [
        (fragment, &[FRAGMENT, ("If-Match", tag)][..], 204),
        (fragment, &[FRAGMENT, ("If-Match", "\"another\"")], 412),
        (restart.as_str(), &[FRAGMENT], 428),
        (&restart, &[FRAGMENT, ("If-Match", "*")], 200),
        (fragment, &[SDP], 415),
    ] {
        let answer = answers.ask(server, ("PATCH", session, &documented), headers, fragment);
        assert_eq!(answer.status(), status, "{headers:?}: {}", answer.text());
    }
    for status in [200, 404] {
        let answer = answers.ask(server, ("DELETE", session, &documented), &[], "");
        assert_eq!(answer.status(), status);
    }
}

/// Asks while nobody decides who may.
fn undecided(answers: &mut Answers, document: &Value) {
    // Nobody listens there.
    let port = testkit::Port::find();
    let options = format!(
        "[access]\nmax_failures = 0\n[access.webhook]\nurl = \"http://127.0.0.1:{port}/\"\n\
         actions = [\"play\", \"api\", \"metrics\"]\n"
    );
    let server = Server::configured(BINARY, &options, ["--control", "127.0.0.1:0"]);
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        // There are no signed paths here.
        if path.starts_with("/s/") {
            continue;
        }
        let values =
            [("{name}", "x"), ("{path}", "vod"), ("{id}", "1"), ("{resource}", "index.m3u8")];
        let real =
            values.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
        for (method, operation) in item.as_object().unwrap() {
            if operation["responses"]["503"]["$ref"] == "#/components/responses/UndecidedProblem" {
                let asks = (&*method.to_uppercase(), &*real, &**path);
                let answer = answers.ask(&server, asks, &[], "");
                assert_eq!(answer.status(), 503, "{method} {path}: {}", answer.text());
                asked += 1;
            }
        }
    }
    assert!(asked >= 10, "{asked}");
}

#[test]
fn answers_are_as_the_document_says() {
    let mut answers = Answers::default();
    let alone = ["--demo", "--control", "127.0.0.1:0"];
    // Publishers that send nothing stay, and so does a stream whose publisher has gone.
    let options = "[drain]\ntimeout = \"60s\"\n[live]\nsilence = \"5m\"\nreconnect = \"10m\"\n";
    let alone = Server::configured(BINARY, options, alone);
    let document = answers.get(&alone, "/api/v1/openapi.json");
    assert_eq!(document.status(), 200);
    let has_it = [("If-None-Match", document.header("etag").unwrap())];
    let path = "/api/v1/openapi.json";
    let again = answers.ask(&alone, ("GET", path, path), &has_it, "");
    assert_eq!((again.status(), again.header("etag")), (304, document.header("etag")));
    let document: Value = serde_json::from_slice(&document.body).unwrap();

    // A stream with a viewer, one with a backup, and one that went away.
    watch(&alone);
    alone.get_until("/api/v1/streams/live/demo", LIMIT, |answer| {
        answer.text().contains("\"flv\":1")
    });
    let _primary = rtmp::Client::publish(alone.rtmp, "live/x");
    let _backup = rtmp::Client::publish(alone.rtmp, "live/x?backup=1");
    // It waits, or has replaced the other, which sends nothing.
    alone.get_until("/api/v1/streams/live/x", LIMIT, |answer| {
        answer.text().contains("\"backup\":\"")
    });
    let publisher = testkit::publish_looped(demo_clip(), &alone.rtmp_url("live/gone"));
    let gone = "/api/v1/streams/live/gone";
    alone.get_until(gone, LIMIT, |answer| answer.text().contains("\"codec\""));
    drop(publisher);
    alone.get_until(gone, LIMIT, |answer| !answer.text().contains("\"state\":\"live\""));
    // Titles are no live streams, and the API does not list them.
    alone.put("film.mp4", &std::fs::read(demo_clip()).unwrap());
    assert_eq!(alone.get("/vod/film.mp4/index.m3u8").status(), 200);
    for path in ["/api/v1/streams", "/api/v1/time", "/healthz", "/readyz", "/metrics"] {
        assert_eq!(answers.get(&alone, path).status(), 200, "{path}");
    }
    titles(&mut answers, &alone);
    let signed = ("GET", "/s/x/api/v1/streams/live/demo", "/s/{token}/api/v1/streams/live/{name}");
    assert_eq!(answers.ask(&alone, signed, &[], "").status(), 404);
    let history = "/api/v1/history";
    for (query, status) in [
        ("", 200),
        ("?stream=live/demo", 200),
        ("?stream=live/none", 404),
        ("?stream=live/none&absent=null", 200),
    ] {
        let whole = format!("{history}{query}");
        // The first sample of a stream comes within five seconds.
        let at = alone.operators();
        eventually(LIMIT, "figures", || testkit::http::get(at, &whole).status() == status);
        assert_eq!(answers.ask(&alone, ("GET", &whole, history), &[], "").status(), status);
    }
    sessions(&mut answers, &alone);
    // These have no end, so only their beginning is judged.
    for (path, begins) in
        [("/api/v1/events", "event: stream_started"), ("/api/v1/log", "event: line")]
    {
        let mut client = Client::connect(alone.operators(), LIMIT).unwrap();
        client.send("GET", path, &[("Last-Event-ID", "0")], b"").unwrap();
        let (head, body) = client.begin().unwrap();
        let first = BufReader::new(body).lines().take(3).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!((head.status, &*first[0]), (200, begins));
        answers.add(("GET", path), &head, &first.join("\n"));
    }
    assert_eq!(answers.get(&alone, "/api/v1/cluster").status(), 404);
    for (stream, status) in [("demo", 200), ("gone", 200), ("none", 404), ("none?absent=null", 200)]
    {
        let path = format!("/api/v1/streams/live/{stream}");
        assert_eq!(answers.ask(&alone, ("GET", &path, STREAM), &[], "").status(), status);
    }
    let route = "/route/live/{name}/{resource}";
    let to = "/route/live/demo/index.m3u8?zone=eu";
    assert_eq!(answers.ask(&alone, ("GET", to, route), &[], "").status(), 307);

    let beacon = "/live/{name}/cmcd";
    for (path, status) in [("/live/demo/cmcd", 204), ("/live/none/cmcd", 404)] {
        let told = "sid=\"one\",sf=h,bl=2100,mtp=25000,br=900,msd=700,bs";
        assert_eq!(answers.ask(&alone, ("POST", path, beacon), &[], told).status(), status);
    }
    let told = "/api/v1/streams/live/demo";
    alone.get_until(told, LIMIT, |answer| answer.text().contains("buffer_seconds"));
    answers.ask(&alone, ("GET", told, STREAM), &[], "");

    signal(&mut answers, &alone, &document, ("cam", WHIP));
    signal(&mut answers, &alone, &document, ("demo", WHEP));
    let offer = document["components"]["requestBodies"]["Offer"]["content"][SDP.1]["example"]
        .as_str()
        .unwrap();
    let taken = answers.ask(&alone, ("POST", "/live/demo/whip", WHIP), &[SDP], offer);
    assert_eq!(taken.status(), 409);
    let none = answers.ask(&alone, ("POST", "/live/none/whep", WHEP), &[SDP], offer);
    assert_eq!(none.status(), 404);

    let without = Server::configured(BINARY, "[webrtc]\nenabled = false\n", NO_ARGUMENTS);
    for (path, documented) in [("/live/x/whip", WHIP), ("/live/x/whep", WHEP)] {
        let answer = answers.ask(&without, ("POST", path, documented), &[SDP], offer);
        assert_eq!(answer.status(), 405);
    }

    undecided(&mut answers, &document);

    // The viewer keeps the server from its end.
    alone.terminate();
    alone.get_until("/readyz", LIMIT, |answer| answer.status() == 503);
    assert_eq!(answers.get(&alone, "/readyz").status(), 503);
    for (path, documented) in [("/live/x/whip", WHIP), ("/live/x/whep", WHEP)] {
        let answer = answers.ask(&alone, ("POST", path, documented), &[SDP], offer);
        assert_eq!(answer.status(), 503);
    }
    answers.assert_complete(&document);
    answers.judge(&document);
}

/// The answers of two nodes, of which the second copies a stream of the first.
#[test]
fn answers_of_a_cluster_are_as_the_document_says() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a", &["--demo"]), node(&nats, "b", &[]));
    let third = node(&nats, "c", &[]);
    eventually(LIMIT, "a knows c", || a.get("/api/v1/cluster").text().contains("\"c\""));
    third.kill();
    watch(&b);
    let mut answers = Answers::default();
    a.get_until("/api/v1/cluster", LIMIT, |answer| {
        let told: Value = serde_json::from_slice(&answer.body).unwrap();
        let is_copied = told["streams"][0]["copies"][0]["node"] == "b";
        is_copied && told["gone"][0]["name"] == "c" && told["nodes"][0]["load"].is_number()
    });
    b.get_until("/api/v1/streams", LIMIT, |answer| answer.text().contains("\"flv\":1"));
    for node in [&a, &b] {
        assert_eq!(answers.get(node, "/api/v1/cluster").status(), 200);
        assert_eq!(answers.get(node, "/api/v1/streams").status(), 200);
        let of_one = ("GET", "/api/v1/streams/live/demo", STREAM);
        assert_eq!(answers.ask(node, of_one, &[], "").status(), 200);
    }
    let document = a.get("/api/v1/openapi.json");
    answers.judge(&serde_json::from_slice(&document.body).unwrap());
}

#[test]
fn a_client_that_is_generated_from_the_document_uses_the_api() {
    let server = Server::start(BINARY, ["--demo", "--control", "127.0.0.1:0"]);
    let operators = format!("http://{}", server.operators());
    let document = testkit::http::get(server.operators(), "/api/v1/openapi.json");
    let file = server.folder().join("openapi.json");
    std::fs::write(&file, &document.body).unwrap();
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let used = Program::spawn(python("client.py").arg(file).arg(operators)).wait(LIMIT);
    assert!(used.status.success(), "{}", used.stderr);
}
