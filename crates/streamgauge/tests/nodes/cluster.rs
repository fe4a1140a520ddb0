//! Nodes of a cluster answer the same.

use testkit::{NO_ARGUMENTS, Nats, Server, headwater};

use crate::{LIMIT, count, document_of, spawn};

fn node(nats: &Nats, name: &str) -> Server {
    let text = format!("[cluster]\nnats = {:?}\nnode = \"{name}\"\n", nats.urls());
    Server::configured(headwater(), &text, NO_ARGUMENTS)
}

#[test]
fn two_nodes_of_a_cluster_are_the_same() {
    let nats = Nats::start();
    let nodes = [node(&nats, "a"), node(&nats, "b")];
    let clip = testkit::demo_clip();
    let _publisher = nodes[0].publish(clip, &nodes[0].rtmp_url("live/x"), &["--loop"]);
    for node in &nodes {
        node.get_until("/live/x/v0/media.m3u8", LIMIT, |response| {
            response.status() == 200 && response.text().matches("#EXTINF").count() >= 3
        });
    }
    // Both at the same time.
    let running =
        [("/live/x/index.m3u8", 40), ("/live/x/manifest.mpd", 6)].map(|(path, objects)| {
            let [a, b] = [0, 1].map(|at| nodes[at].url(path));
            (objects, spawn(&[&a, &b, "--duration", "20s", "--timeout", "30s", "--json"]))
        });
    for (objects, program) in running {
        let (code, document) = document_of(&program.wait(LIMIT));
        assert_eq!((code, &document["passed"]), (0, &true.into()), "{document:#}");
        assert_eq!(count(&document, "differences"), 0);
        assert!(count(&document, "objects") >= objects, "{document:#}");
        assert!(count(&document, "bytes") > 100_000, "{document:#}");
        // Both were followed while new media came.
        let behind = [0, 1].map(|at| &document["nodes"][at]["behind"]);
        assert!(behind[0]["count"].as_u64().unwrap() > 0, "{document:#}");
        assert_eq!(behind[0]["count"], behind[1]["count"]);
        let of_both = |name: &str| behind.map(|of| of[name].as_f64().unwrap());
        assert!(of_both("min").contains(&0.0), "{document:#}");
        assert!(of_both("max").iter().all(|most| *most < 60.0), "{document:#}");
    }
}
