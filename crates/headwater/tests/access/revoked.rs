//! Sessions that were allowed and are not any more.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::{NO_ARGUMENTS, Program, Server, certificate, eventually};

use crate::hook::{PATIENT, hook};
use crate::support::{
    BINARY, Crowd, LIMIT, SILENT_VIEWERS, aiortc, ask, publish, server, sessions, status, wait_for,
};

const REASON: &str = "this is no longer allowed";

/// Two who may stay, and a [`Crowd`] that does not know yet that it may not.
fn begin(server: &Server) -> ([Program; 2], Crowd) {
    let stays = publish(server, "live/cam?key=stays");
    wait_for(server, "/live/cam/index.m3u8?key=stays");
    let webrtc = aiortc("publish", &server.url("/live/camrtc/whip?key=stays"));
    wait_for(server, "/live/camrtc/index.m3u8?key=stays");
    let crowd = Crowd::begin(server, "cam", "key=goes", "key=goes");
    eventually(LIMIT, "all have begun", || sessions(server, "").len() == 2 + Crowd::SESSIONS);
    ([stays, webrtc], crowd)
}

/// Those who may stay are there, and nobody else. A session that was ended is listed until its task is run.
#[track_caller]
fn others_go_on(server: &Server) {
    eventually(LIMIT, "only those who may stay are left", || {
        let sessions = sessions(server, "");
        let streams = sessions.iter().map(|session| session["stream"].as_str().unwrap());
        streams.eq(["live/cam", "live/camrtc"])
    });
    for name in ["cam", "camrtc"] {
        let path = format!("/api/v1/streams/live/{name}?key=stays");
        let answer = ask(server, "GET", &path, &[], b"");
        assert!(answer.text().contains("\"state\":\"live\""), "{}", answer.text());
    }
}

#[test]
fn sessions_end_when_the_webhook_changes_its_mind() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let (is_away, closed) = (Arc::new(AtomicBool::new(false)), Arc::clone(&is_closed));
    let away = Arc::clone(&is_away);
    let (address, asked) = hook(move |question| {
        let rechecks = question["recheck"] == true;
        let is_refused =
            rechecks && closed.load(Ordering::Relaxed) && question["password"] == "goes";
        let status = if is_refused { 403 } else { 200 };
        Some(if rechecks && away.load(Ordering::Relaxed) { 500 } else { status })
    });
    // A webhook that does not decide ends nobody.
    is_away.store(true, Ordering::Relaxed);
    let (_folder, server) = server(&format!(
        "[access.webhook]\nurl = \"http://{address}/\"\nrecheck = \"1s\"\ncache = \"0s\"\n{PATIENT}{SILENT_VIEWERS}"
    ));
    let (programs, crowd) = begin(&server);
    let rechecked = || asked.lock().unwrap().iter().filter(|it| it["recheck"] == true).count();
    let all = 2 + Crowd::SESSIONS;
    eventually(LIMIT, "all are asked about again", || rechecked() >= all);
    is_away.store(false, Ordering::Relaxed);
    let before = rechecked();
    eventually(LIMIT, "all are asked about again", || rechecked() >= before + all);
    assert_eq!(sessions(&server, "").len(), all, "nobody ends while the webhook does not decide");
    is_closed.store(true, Ordering::Relaxed);
    crowd.wait_for_end(&server, REASON, || ());
    others_go_on(&server);
    drop(programs);
}

#[test]
fn sessions_end_when_the_rule_that_let_them_in_is_gone() {
    let rule = |key: &str| {
        format!("[[access.rule]]\nactions = [\"publish\", \"play\"]\nkey = \"{key}\"\n")
    };
    let (_folder, server) = server(&(rule("stays") + &rule("goes") + SILENT_VIEWERS));
    let (programs, crowd) = begin(&server);
    let file = server.folder().join("headwater.toml");
    // What cannot be used changes nothing.
    for (wrong, why) in
        [("[access]\nrule = 1\n", "rule"), ("[access]\nsigning_key = \"/no/key\"\n", "signing_key")]
    {
        fs::write(&file, wrong).unwrap();
        let log = server.whole_log();
        let line = log.lines().rfind(|line| line.contains("SIGHUP: ")).unwrap();
        assert!(line.contains("stays as it was") && line.contains("headwater.toml"), "{line}");
        assert!(line.contains(why), "{line}");
    }
    assert_eq!(status(&server, "/live/cam/index.m3u8?key=goes", &[]), 200);
    assert_eq!(sessions(&server, "").len(), 2 + Crowd::SESSIONS);

    fs::write(&file, rule("stays") + "[live]\nwindow = \"20s\"\n").unwrap();
    let log = server.whole_log();
    let line = log.lines().rfind(|line| line.contains("SIGHUP: ")).unwrap();
    assert!(line.contains("took [access]") && line.contains("need a restart"), "{line}");
    assert_eq!(status(&server, "/live/cam/index.m3u8?key=goes", &[]), 403);
    crowd.wait_for_end(&server, REASON, || ());
    others_go_on(&server);

    // Who guessed has guessed, whatever is read again.
    let guess = |number| status(&server, &format!("/live/cam/index.m3u8?key={number}"), &[]);
    eventually(LIMIT, "who guesses is slowed down", || guess(1) == 429);
    let log = server.whole_log();
    assert!(log.contains("took [access]"));
    assert_eq!(guess(2), 429);
    drop(programs);
}

/// Something else that is wrong by now is no reason to let in somebody who must go.
#[test]
fn a_rule_is_taken_away_though_the_certificate_has_no_key() {
    let rule = |key: &str| format!("[[access.rule]]\nactions = [\"play\"]\nkey = \"{key}\"\n");
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    certificate::make("first", &certificate, &key);
    let tls = format!(
        "[http.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {certificate:?}\nkey = {key:?}\n"
    );
    let server = Server::configured(BINARY, &(rule("stays") + &rule("goes") + &tls), NO_ARGUMENTS);
    let status_of = |key: &str| status(&server, &format!("/live/none/index.m3u8?key={key}"), &[]);
    assert_eq!([status_of("stays"), status_of("goes")], [404, 404]);
    fs::remove_file(&key).unwrap();
    fs::write(server.folder().join("headwater.toml"), rule("stays") + &tls).unwrap();
    assert!(server.whole_log().contains("took [access]"));
    assert_eq!([status_of("stays"), status_of("goes")], [404, 403]);
}
