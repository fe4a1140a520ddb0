//! nginx with its RTMP module: RTMP, and HLS with MPEG-TS segments from a folder.

use std::process::Command;

use testkit::{Port, Program, eventually, http};

use crate::common::{LIMIT, document, start};
use crate::support::assert_verdict;

#[test]
fn plays_what_nginx_has_over_rtmp_and_hls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (rtmp, web) = (Port::find(), Port::find());
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
         user root; error_log stderr;
         events {{}}
         http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;
           fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
           types {{ }} default_type application/octet-stream;
           server {{ listen 127.0.0.1:{web}; root {path}; }} }}
         rtmp {{ server {{ listen 127.0.0.1:{rtmp}; application live {{ live on; wait_key on;
           hls on; hls_path {path}/hls; hls_fragment 1s; hls_playlist_length 60s; }} }} }}"
    );
    let nginx = testkit::nginx(folder.path(), &rtmp, &config);
    let clip = testkit::demo_clip();
    let url = format!("rtmp://127.0.0.1:{rtmp}/live/x");
    let address = ([127, 0, 0, 1], web.number()).into();
    let publisher = Program::spawn(
        Command::new("ffmpeg")
            .args([
                "-nostdin",
                "-hide_banner",
                "-loglevel",
                "error",
                "-re",
                "-stream_loop",
                "-1",
                "-i",
            ])
            .arg(&clip)
            .args(["-c", "copy", "-f", "flv", &url]),
    );
    // HLS can be played once there are enough segments to begin three target durations from the
    // end.
    let is_there = |response: &http::Response| {
        response.status() == 200 && response.text().matches("#EXTINF").count() >= 4
    };
    eventually(LIMIT, "nginx has enough segments", || is_there(&http::get(address, "/hls/x.m3u8")));
    let reference = clip.to_str().unwrap();
    let rtmp = start(["watch", &url, "--duration", "20s", "--json", "--reference", reference]);
    let hls = format!("http://127.0.0.1:{web}/hls/x.m3u8");
    let hls = start([
        "viewers",
        &hls,
        "--batch-size",
        "3",
        "--duration",
        "20s",
        // Some seconds of media, also where the machine stands still for the other seconds.
        "--at-least",
        "0.3",
        "--verify",
        "full",
        "--json",
    ]);

    let (code, document_of_rtmp) = document(rtmp);
    assert_verdict(code, &document_of_rtmp, true);
    let viewer = &document_of_rtmp["viewer"];
    assert_eq!(viewer["verified"]["matched"], viewer["verified"]["samples"], "{viewer:#}");
    assert!(viewer["received"].as_f64().unwrap() > 3.0, "{viewer:#}");

    // Segments of another container are only counted.
    let (code, document_of_hls) = document(hls);
    assert_verdict(code, &document_of_hls, true);
    let viewers = &document_of_hls["viewers"];
    assert_eq!(viewers["verified_samples"], 0, "{viewers:#}");
    assert!(viewers["media_bytes"].as_u64().unwrap() > 1_000_000, "{viewers:#}");
    assert!(viewers["errors"].as_object().unwrap().is_empty(), "{viewers:#}");
    drop((publisher, nginx));
}

#[test]
fn nginx_sends_of_a_file_what_the_player_announces_and_paces_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let port = Port::find();
    let clip = testkit::demo_clip();
    let films = clip.parent().unwrap().to_str().unwrap();
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
         user root; error_log stderr;
         events {{}}
         rtmp {{ server {{ listen 127.0.0.1:{port}; application vod {{ play {films}; }} }} }}"
    );
    let nginx = testkit::nginx(folder.path(), &port, &config);
    let url = format!("rtmp://127.0.0.1:{port}/vod/demo.mp4");
    let lasts = |announced: &str| {
        let run = ["viewers", &url, "--duration", "80s", "--ahead", "0s", "--verify", "full"];
        let more = ["--announce-buffer", announced, "--json"];
        let (_, document) = document(start(run.into_iter().chain(more)));
        let received = document["viewers"]["received"]["mean"].as_f64().unwrap();
        assert!((15.8..16.1).contains(&received), "{document:#}");
        document["elapsed"].as_f64().unwrap()
    };
    // The film lasts 16 s. nginx is at most 1.1 s ahead of the first player.
    let paced = lasts("100ms");
    assert!(paced > 14.0, "{paced}");
    // A busy machine makes a run last longer, and no run shorter.
    let mut at_once = Vec::new();
    while at_once.last().is_none_or(|lasted| *lasted >= 10.0) {
        assert!(at_once.len() < 3, "{at_once:?}");
        at_once.push(lasts("10h"));
    }
    drop(nginx);
}
