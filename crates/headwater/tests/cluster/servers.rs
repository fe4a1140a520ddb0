//! Three NATS servers, of which some fail.

use std::path::Path;

use ::cluster::wire;
use testkit::{Nats, Server, eventually, hashes_so_far, http, playlist};

use crate::support::{LIMIT, clip, node_with, publish, viewer};

const PLAYLIST: &str = "/live/x/v0/media.m3u8";

/// Node number `at`, which knows these servers. What nodes agree on is on three servers.
fn node(servers: &[String], at: usize) -> Server {
    let text = format!("[cluster]\nnats = {servers:?}\nnode = \"n{at}\"\nreplicas = 3\n");
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &text, testkit::NO_ARGUMENTS)
}

/// The numbers of the segments in a playlist of video.
fn numbers(node: &Server) -> Vec<u64> {
    playlist::numbers(http::get(node.http, PLAYLIST).text())
}

/// Waits until the node has `count` more segments.
fn wait_for_segments(node: &Server, count: u64) {
    let mut before = None;
    eventually(LIMIT, "further segments", || {
        let newest = numbers(node).last().copied();
        before = before.or(newest);
        newest > before.map(|before| before + count - 1)
    });
}

/// The frames of a clip.
fn all_frames(clip: &Path) -> Vec<String> {
    hashes_so_far(&viewer(clip.to_str().unwrap(), "100000").wait(LIMIT).stdout)
}

/// All frames that a viewer got are those of the clip, one after the other.
fn assert_in_order(got: &[String], clip: &Path) {
    let all = all_frames(clip);
    let first = all.iter().position(|frame| Some(frame) == got.first()).expect("the first frame");
    let wrong = got.iter().zip(&all[first..]).position(|(got, sent)| got != sent);
    assert_eq!(wrong, None, "{} frames, from {first} on", got.len());
}

#[test]
fn whichever_server_ends_no_viewer_misses_a_frame() {
    let mut nats = Nats::start_cluster(3);
    // Each node comes to the servers in its own order.
    let (a, b) = (node(&nats.urls(), 0), node(&nats.urls(), 1));
    let clip = clip();
    let publisher = publish(&a, &clip, "live/x");
    eventually(LIMIT, "a copy", || http::get(b.http, PLAYLIST).status() == 200);
    let mut viewer = viewer(&b.url("/live/x/live.flv"), "100000");
    for server in 0..3 {
        wait_for_segments(&b, 1);
        nats.kill(server);
        wait_for_segments(&b, 2);
        nats.run(server);
    }
    nats.send_away(1);
    wait_for_segments(&b, 2);
    assert!(viewer.is_running(), "{}", viewer.stderr());
    viewer.terminate();
    let received = hashes_so_far(&viewer.wait(LIMIT).stdout);
    // Eleven segments of a second, at least.
    assert!(received.len() > 250, "{}", received.len());
    assert_in_order(&received, &clip);
    assert!(!http::get(b.http, PLAYLIST).text().contains("DISCONTINUITY\n"));
    eventually(LIMIT, "both have the same", || {
        http::get(a.http, PLAYLIST).text() == http::get(b.http, PLAYLIST).text()
    });
    drop(publisher);
}

#[test]
fn a_node_that_was_cut_off_takes_what_went_on_elsewhere() {
    let nats = Nats::start_cluster(3);
    // Node a knows only the first server, and loses it.
    let (a, b) = (node(&nats.urls()[..1], 0), node(&nats.urls()[1..], 1));
    let c = node(&nats.urls()[2..], 2);
    let (clip, other) = (clip(), testkit::clip("long/backup.flv"));
    let _first = publish(&a, &clip, "live/x");
    for node in [&b, &c] {
        eventually(LIMIT, "a copy", || http::get(node.http, PLAYLIST).status() == 200);
    }
    wait_for_segments(&b, 2);
    let viewer = viewer(&c.url("/live/x/live.flv"), "100000");
    eventually(LIMIT, "it plays", || !hashes_so_far(&viewer.stdout()).is_empty());
    nats.program(0).pause();
    // The first encoder still publishes to a, and a serves it. The second has another film.
    let mut second = publish(&b, &other, "live/x");
    eventually(LIMIT, "b goes on", || {
        if !second.is_running() {
            second = publish(&b, &other, "live/x");
        }
        http::get(b.http, PLAYLIST).text().contains("#EXT-X-DISCONTINUITY\n")
    });
    // The lease of a, which cannot renew it, is over.
    eventually(LIMIT, "b has the stream", || {
        let text = http::get(c.http, "/api/v1/cluster").text().to_owned();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let nodes = told["nodes"].as_array().unwrap();
        nodes.iter().any(|node| node["name"] == "n1" && node["streams"] == 1)
    });
    let shown = numbers(&b);
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    wait_for_segments(&a, 1);
    assert!(!http::get(a.http, PLAYLIST).text().contains("DISCONTINUITY\n"));
    nats.program(0).resume();
    eventually(LIMIT, "all follow b", || {
        let [a, b, c] = [&a, &b, &c].map(|node| http::get(node.http, PLAYLIST));
        b.text().contains("#EXT-X-DISCONTINUITY\n") && a.text() == b.text() && c.text() == b.text()
    });
    assert!(second.is_running());
    wait_for_segments(&c, 2);
    // The viewer got some of the first film, and then only the second.
    viewer.terminate();
    let received = hashes_so_far(&viewer.wait(LIMIT).stdout);
    let second_film = all_frames(&other);
    let of_second = |frame: &String| second_film.contains(frame);
    let change = received.iter().position(of_second).expect("the second film");
    assert_in_order(&received[..change], &clip);
    assert_in_order(&received[change..], &other);
    assert!(a.whole_log().contains("another node has the stream"), "{}", a.log());
    assert!(!b.whole_log().contains("another node has the stream"), "{}", b.log());
}

#[test]
fn what_other_programs_write_to_the_subjects_harms_nobody() {
    let nats = Nats::start();
    let (a, b) = (node_with(&nats, "a", ""), node_with(&nats, "b", ""));
    let clip = clip();
    let publisher = publish(&a, &clip, "live/x");
    eventually(LIMIT, "a copy", || http::get(b.http, PLAYLIST).status() == 200);
    let viewer = viewer(&b.url("/live/x/live.flv"), "200");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(disturb(&nats.url(0)));
    let received = hashes_so_far(&viewer.wait(LIMIT).stdout);
    assert_eq!(received.len(), 200);
    assert_in_order(&received, &clip);
    let refused = |node: &Server| -> u64 {
        let metrics = http::get(node.http, "/metrics");
        let count =
            metrics.text().lines().find(|l| l.starts_with("headwater_cluster_refused_total"));
        count.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(refused(&a) >= 20 && refused(&b) >= 20, "{} {}", refused(&a), refused(&b));
    // A message as nodes write it, of a lease that nobody has.
    let before = refused(&b);
    runtime.block_on(tell_of_epoch(1, &nats.url(0)));
    eventually(LIMIT, "it is refused", || refused(&b) > before);
    eventually(LIMIT, "both have the same", || {
        http::get(a.http, PLAYLIST).text() == http::get(b.http, PLAYLIST).text()
    });
    drop(publisher);
}

/// Says to the subject of the stream that all is told, by a lease of this epoch.
async fn tell_of_epoch(epoch: u64, url: &str) {
    let client = async_nats::connect(url).await.unwrap();
    for message in wire::write(epoch, &wire::Message::Done).unwrap() {
        client.publish("headwater.live.x", message).await.unwrap();
    }
    client.flush().await.unwrap();
}

/// Writes noise, and damaged copies of what nodes write, to all subjects.
async fn disturb(url: &str) {
    use futures_util::StreamExt;
    let client = async_nats::connect(url).await.unwrap();
    let heard = client.subscribe("headwater.>").await.unwrap();
    let messages: Vec<_> = heard.take(50).collect().await;
    let mut random = testkit::Random::new(1);
    let kinds = ["nodes", "live.x", "units.x", "node.a", "node.b"];
    for turn in 0..200 {
        for kind in kinds {
            let noise = testkit::noise(turn, random.index(2000));
            let subject = format!("headwater.{kind}");
            client.publish_with_reply(subject, "nobody", noise.into()).await.unwrap();
        }
        let message = &messages[random.index(messages.len())];
        let mut damaged = message.payload.to_vec();
        let at = random.index(damaged.len());
        damaged[at] ^= 1 << random.index(8);
        client.publish(message.subject.clone(), damaged.into()).await.unwrap();
    }
    client.flush().await.unwrap();
}
