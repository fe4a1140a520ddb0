//! The publishers come to two nodes of a cluster.

use testkit::rtmp::Client;
use testkit::{Nats, Server, eventually, http, playlist};

use crate::support::{Clips, LIMIT, PLAYLIST, Runs, await_runs, node, node_with, player, state};

#[test]
fn viewers_of_both_nodes_stay_when_the_first_publisher_hangs_and_when_it_comes_again() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let clips = Clips::read();
    let primary = testkit::publish(&clips.primary, &a.rtmp_url("live/x"));
    eventually(LIMIT, "a copy", || http::get(b.http, PLAYLIST).status() == 200);
    let backup = testkit::publish(&clips.backup, &b.rtmp_url("live/x?backup=1"));
    for node in [&a, &b] {
        eventually(LIMIT, "the backup waits", || state(node)["backup"] == "waiting");
    }
    // A third is refused by any node.
    for node in [&a, &b] {
        for name in ["live/x", "live/x?backup=1"] {
            let refused = Client::try_publish(node.rtmp, name).map(|_| ());
            assert_eq!(refused.unwrap_err(), "NetStream.Publish.BadName", "{name}");
        }
    }
    let viewers = [player(&a, "/live/x/live.flv"), player(&b, "/live/x/live.flv")];
    let await_both = |count, mark| {
        for viewer in &viewers {
            await_runs(viewer, &clips, (count, mark));
        }
    };
    await_both(1, 'p');
    primary.pause();
    await_both(2, 'b');
    for node in [&a, &b] {
        eventually(LIMIT, "the backup is live", || state(node)["backup"] == "live");
    }
    primary.resume();
    await_both(3, 'p');
    for node in [&a, &b] {
        eventually(LIMIT, "the backup waits", || state(node)["backup"] == "waiting");
    }
    let mut playlist = String::new();
    eventually(LIMIT, "both show the same", || {
        let texts = [&a, &b].map(|node| http::get(node.http, PLAYLIST).text().to_owned());
        playlist.clone_from(&texts[0]);
        texts[0] == texts[1]
    });
    let shown = playlist::numbers(&playlist);
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    assert_eq!(playlist.matches("#EXT-X-DISCONTINUITY\n").count(), 2, "{playlist}");
    drop((primary, backup));
    for viewer in viewers {
        Runs::of(&viewer.stdout(), &clips).assert_in_order();
    }
}

#[test]
fn the_backup_goes_on_when_the_node_of_the_first_publisher_is_killed() {
    let nats = Nats::start();
    let (a, b, c) = (node(&nats, "a"), node(&nats, "b"), node(&nats, "c"));
    let clips = Clips::read();
    let primary = testkit::publish(&clips.primary, &a.rtmp_url("live/x"));
    eventually(LIMIT, "a copy", || http::get(b.http, PLAYLIST).status() == 200);
    let _backup = testkit::publish(&clips.backup, &b.rtmp_url("live/x?backup=1"));
    eventually(LIMIT, "the backup waits", || {
        state(&c)["backup"] == "waiting" || {
            http::get(c.http, PLAYLIST);
            false
        }
    });
    let viewers = [player(&b, "/live/x/live.flv"), player(&c, "/live/x/live.flv")];
    for viewer in &viewers {
        await_runs(viewer, &clips, (1, 'p'));
    }
    a.kill();
    drop(primary);
    for viewer in &viewers {
        await_runs(viewer, &clips, (2, 'b'));
    }
    // The first comes to a third node, and goes on there.
    let _primary = testkit::publish(&clips.primary, &c.rtmp_url("live/x"));
    for viewer in &viewers {
        await_runs(viewer, &clips, (3, 'p'));
        Runs::of(&viewer.stdout(), &clips).assert_each_in_order();
    }
}

/// The first node offers only the rendition that it makes, and the other makes none.
#[test]
fn renditions_are_made_again_of_a_stream_that_comes_back() {
    let ladder = "[ladder]\nenabled = true\nsource = false\npreset = \"ultrafast\"\nnice = 0\n\
                  rungs = [{ name = \"low\", width = 96, height = 54, bitrate = \"60kbit/s\" }]\n";
    let nats = Nats::start();
    let (a, b) = (node_with(&nats, "a", ladder), node(&nats, "b"));
    let primary = testkit::publish(testkit::clip("long/primary.flv"), &a.rtmp_url("live/x"));
    let offers = |node: &Server, source: bool, rendition: bool| {
        node.get_until("/live/x/index.m3u8", LIMIT, |answer| {
            let has = |size| answer.status() == 200 && answer.text().contains(size);
            has("RESOLUTION=160x90") == source && has("RESOLUTION=96x54") == rendition
        });
    };
    offers(&a, false, true);
    offers(&b, false, true);
    let backup = testkit::clip("long/backup.flv");
    let backup = testkit::publish(&backup, &b.rtmp_url("live/x?backup=1"));
    eventually(LIMIT, "the backup waits", || state(&a)["backup"] == "waiting");
    primary.pause();
    eventually(LIMIT, "the backup is live", || state(&b)["backup"] == "live");
    for node in [&a, &b] {
        offers(node, true, false);
    }
    eventually(LIMIT, "no ladder is left", || a.metric("headwater_ladders") == 0);
    primary.resume();
    for node in [&a, &b] {
        offers(node, false, true);
    }
    drop((primary, backup));
}
