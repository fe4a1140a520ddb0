//! Both publishers come to one node.

use testkit::rtmp::Client;
use testkit::{eventually, ffmpeg, http, playlist};

use crate::support::{Clips, LIMIT, PLAYLIST, Runs, await_runs, player, start, state};

#[test]
fn viewers_stay_when_the_first_publisher_hangs_and_when_it_comes_again() {
    let server = start();
    let clips = Clips::read();
    let primary = testkit::publish(&clips.primary, &server.rtmp_url("live/x"));
    eventually(LIMIT, "a playlist", || http::get(server.http, PLAYLIST).status() == 200);
    let backup = testkit::publish(&clips.backup, &server.rtmp_url("live/x?backup=1"));
    eventually(LIMIT, "the backup waits", || state(&server)["backup"] == "waiting");
    let viewer = player(&server, "/live/x/live.flv");
    let rtmp = player(&server, "rtmp");
    await_runs(&viewer, &clips, (1, 'p'));
    await_runs(&rtmp, &clips, (1, 'p'));

    // It is silent, and its connection stays.
    primary.pause();
    await_runs(&viewer, &clips, (2, 'b'));
    await_runs(&rtmp, &clips, (2, 'b'));
    let api = state(&server);
    assert_eq!((&api["backup"], &api["state"]), (&"live".into(), &"live".into()), "{api}");
    assert_eq!(api["publishers"][0]["backup"], true, "{api}");

    primary.resume();
    await_runs(&viewer, &clips, (3, 'p'));
    await_runs(&rtmp, &clips, (3, 'p'));
    let api = state(&server);
    assert_eq!(api["backup"], "waiting", "{api}");
    let backups =
        |list: &str| api[list].as_array().unwrap().iter().filter(|it| it["backup"] == true).count();
    assert_eq!((backups("publishers"), backups("waiting")), (0, 1), "{api}");

    let playlist = http::get(server.http, PLAYLIST);
    let shown = playlist::numbers(playlist.text());
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    assert_eq!(playlist.text().matches("#EXT-X-DISCONTINUITY\n").count(), 2, "{}", playlist.text());
    let log = server.whole_log();
    assert!(log.contains("backup goes on in place of the primary"), "{log}");
    assert!(log.contains("primary goes on in place of its backup"), "{log}");
    assert!(!log.contains("stream ended"), "{log}");
    assert_eq!(server.metric("headwater_publisher_takeovers_total{to=\"backup\"}"), 1);
    assert_eq!(server.metric("headwater_publisher_takeovers_total{to=\"primary\"}"), 1);
    drop(backup);
    for viewer in [viewer, rtmp] {
        // Consecutive frames of each, from a keyframe on, and none twice.
        Runs::of(&viewer.stdout(), &clips).assert_in_order();
    }
}

#[test]
fn the_backup_goes_on_when_the_first_leaves_and_yields_when_it_reconnects() {
    let server = start();
    let clips = Clips::read();
    // Nobody else is there, so the backup's media go on at once.
    let backup = testkit::publish(&clips.backup, &server.rtmp_url("live/x?backup=1"));
    eventually(LIMIT, "the backup is live", || state(&server)["backup"] == "live");
    let viewer = player(&server, "/live/x/live.mp4");
    await_runs(&viewer, &clips, (1, 'b'));
    let primary = testkit::publish(&clips.primary, &server.rtmp_url("live/x"));
    await_runs(&viewer, &clips, (2, 'p'));
    // A third is refused, whichever it wants to be.
    for name in ["live/x", "live/x?backup=1"] {
        let refused = Client::try_publish(server.rtmp, name).map(|_| ());
        assert_eq!(refused.unwrap_err(), "NetStream.Publish.BadName", "{name}");
    }
    let refused = Client::try_publish(server.rtmp, "live/x?backup=1&rendition=low").map(|_| ());
    assert_eq!(refused.unwrap_err(), "NetStream.Publish.BadName");
    drop(primary);
    await_runs(&viewer, &clips, (3, 'b'));
    let primary = testkit::publish(&clips.primary, &server.rtmp_url("live/x"));
    await_runs(&viewer, &clips, (4, 'p'));
    // A backup that leaves while it waits disturbs nobody.
    drop(backup);
    eventually(LIMIT, "it has left", || state(&server)["backup"].is_null());
    let before = Runs::of(&viewer.stdout(), &clips);
    eventually(LIMIT, "the viewer goes on", || {
        let now = Runs::of(&viewer.stdout(), &clips);
        now.0.len() == 4 && now.0[3].2 > before.0[3].2 + 50
    });
    drop(primary);
    let runs = Runs::of(&viewer.stdout(), &clips);
    runs.assert_each_in_order();
    let playlist = http::get(server.http, PLAYLIST);
    let shown = playlist::numbers(playlist.text());
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    assert_eq!(playlist.text().matches("#EXT-X-DISCONTINUITY\n").count(), 3, "{}", playlist.text());
}

#[test]
fn a_backup_by_whip_goes_on_with_the_tracks_of_a_publisher_by_rtmp() {
    let server = start();
    let clips = Clips::read();
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("backup.mp4");
    let source = ["-i", clips.backup.to_str().unwrap(), "-c:v", "copy", "-c:a", "libopus"];
    ffmpeg(source.iter().chain(&["-t", "100", film.to_str().unwrap()]));
    let publish = || server.publish(&film, &server.url("/live/x/whip?backup=1"), &[]);
    let primary = testkit::publish(&clips.primary, &server.rtmp_url("live/x"));
    eventually(LIMIT, "a playlist", || http::get(server.http, PLAYLIST).status() == 200);
    let backup = publish();
    eventually(LIMIT, "the backup waits", || state(&server)["backup"] == "waiting");
    let refused = publish().wait(LIMIT);
    assert!(!refused.status.success() && refused.stderr.contains("409"), "{}", refused.stderr);
    let viewer = player(&server, "/live/x/live.mp4");
    await_runs(&viewer, &clips, (1, 'p'));
    drop(primary);
    eventually(LIMIT, "the backup is live", || state(&server)["backup"] == "live");
    let api = state(&server);
    assert_eq!(api["publishers"][0]["protocol"], "whip", "{api}");
    let mut text = String::new();
    eventually(LIMIT, "some segments of the backup", || {
        text = http::get(server.http, PLAYLIST).text().to_owned();
        let after = text.split("#EXT-X-DISCONTINUITY\n").nth(1);
        after.is_some_and(|after| playlist::numbers(after).len() >= 2)
    });
    let shown = playlist::numbers(&text);
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    let tracks = state(&server)["tracks"].clone();
    let tracks = tracks.as_array().unwrap().iter().map(|track| track["name"].clone());
    assert_eq!(tracks.collect::<Vec<_>>(), ["v0", "a0"]);
    drop(backup);
}
