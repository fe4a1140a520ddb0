//! The page is complete, safe and accessible.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use crate::fixture::{Folder, trial};
use crate::rich;
use crate::usage::{SMALL, made};

fn page() -> String {
    let place = tempfile::tempdir().unwrap();
    rich::write(place.path(), 0.1);
    fs::read_to_string(made(&[place.path()]).join("index.html")).unwrap()
}

#[test]
fn the_page_needs_nothing_else_and_runs_only_its_own_script() {
    let page = page();
    for no in ["</style><b>", " src=", "url(", "@import", "<link", "<iframe", "javascript:"] {
        assert!(!page.contains(no), "{no}");
    }
    // Titles that would be scripts are escaped. If one were not, the policy would not let it run.
    assert_eq!(page.matches("<script").count(), 1);
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let hash = BASE64_STANDARD.encode(Sha256::digest(script));
    let policy =
        format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'");
    assert!(page.contains(&format!("content=\"{policy}\"")), "{policy}");
    let outside = page.matches("http").count();
    let allowed =
        page.matches("http://www.w3.org/2000/svg").count() + page.matches("http-equiv").count();
    assert_eq!(outside, allowed);
    assert!(page.len() < 2_000_000, "{}", page.len());
}

#[test]
fn anchors_lead_somewhere_and_ids_are_unique() {
    let page = page();
    let values = |name: &str| -> Vec<String> {
        page.split(&format!(" {name}=\""))
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect()
    };
    let ids = values("id");
    let unique: std::collections::HashSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
    let links: Vec<String> = values("href");
    assert!(links.len() >= 10, "{links:?}");
    for link in links.iter().filter(|link| !link.starts_with("data:text/csv;")) {
        let id = link.strip_prefix('#').unwrap_or_else(|| panic!("{link}"));
        assert!(ids.iter().any(|known| known == id), "{link}");
    }
    for label in values("aria-labelledby") {
        assert!(label.split(' ').all(|id| ids.contains(&id.to_owned())), "{label}");
    }
}

#[test]
fn a_table_can_be_saved_as_csv() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path(), SMALL, 1.0, &[("a", "A", "1")]);
    for (repetition, count) in [(1, 1000.0), (2, 1234.5)] {
        folder.keep(&trial("one", &[("clients", 1.0)], "a", repetition, &[("count", count)]));
    }
    let page = fs::read_to_string(made(&[place.path()]).join("index.html")).unwrap();
    assert!(page.contains("download=\"table-1.csv\""), "{page}");
    let data = page.split("data:text/csv;charset=utf-8;base64,").nth(1).unwrap();
    let csv = BASE64_STANDARD.decode(data.split('"').next().unwrap()).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let measured = csv.lines().find(|line| line.starts_with("A,")).unwrap();
    // The median, the least, the most and the mark of noise, then what the study has.
    assert_eq!(measured, "A,1117.25,1000,1234.5,‡,4,279.3125,0", "{csv}");
}

#[test]
fn warnings_are_counted_and_folded_by_reason() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path(), SMALL, 1.0, &[("a", "A", "1")]);
    for repetition in 1..=150 {
        let mut kept = trial("one", &[("clients", 1.0)], "a", repetition, &[("count", 1.0)]);
        kept.warnings.push(format!("loop {repetition} was {}.5 ms late", 2 * repetition));
        if repetition == 150 {
            kept.failed = Some("it died".to_owned());
        }
        folder.keep(&kept);
    }
    let report = made(&[place.path()]);
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    for said in [
        "<details class=\"warnings\"><summary><strong>151 warnings</strong> for 2 reasons</summary>",
        "<summary>1 × failed: it died</summary>",
        "<summary>150 × loop … was … ms late</summary>",
        "one, 1 client, A, repetition 100: loop 100 was 200.5 ms late",
        "And 50 more, in the trials’ files.",
    ] {
        assert!(page.contains(said), "{said}");
    }
    assert!(!page.contains("loop 101"));
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    let line = "- 150 × loop … was … ms late, such as: one, 1 client, A, repetition 1: loop 1 was";
    assert!(text.contains(line), "{text}");
}

#[test]
fn servers_whose_latencies_are_by_different_clocks_are_warned_of() {
    let warned = |clocks: [&str; 2]| {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path(), SMALL, 1.0, &[("a", "A", "1"), ("b", "B", "1")]);
        for (peer, clock) in ["a", "b"].into_iter().zip(clocks) {
            let metrics = [("count", 1.0), (clock, 5.0)];
            folder.keep(&trial("one", &[("clients", 1.0)], peer, 1, &metrics));
        }
        let text = fs::read_to_string(made(&[place.path()]).join("report.md")).unwrap();
        text.contains("delivery and time behind live are by stamp of A, by date-time of B")
    };
    assert!(warned(["by_stamp", "by_date_time"]));
    assert!(!warned(["by_stamp", "by_stamp"]));
}

#[test]
fn the_page_says_what_is_to_be_known() {
    let page = page();
    for said in [
        "Scale 0.1",
        "not measured: ",
        "no deno in PATH",
        "perf is not allowed here",
        "In 13 of 258 trials the generator was saturated",
        "Pull, 700 clients, Node.js, repetition 2 failed: it died",
        "nginx version: nginx/1.22.1",
        "A processor of eight cores",
        "taskset -c 0 headwater -c &#39;a file.conf&#39;",
        "<details>",
        "<figcaption",
    ] {
        let said = said.replace("&#39;", "'");
        assert!(page.contains(&said), "{said}");
    }
}
