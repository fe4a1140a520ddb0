//! The page is complete, safe and accessible.

use std::fs;

use crate::rich;
use crate::usage::made;

fn page() -> String {
    let place = tempfile::tempdir().unwrap();
    rich::write(place.path(), 0.1);
    fs::read_to_string(made(&[place.path()]).join("index.html")).unwrap()
}

#[test]
fn the_page_needs_nothing_else_and_runs_nothing() {
    let page = page();
    for no in
        ["<script", "</style><b>", " src=", "url(", "@import", "<link", "<iframe", "javascript:"]
    {
        assert!(!page.contains(no), "{no}");
    }
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
    for link in links {
        assert!(ids.contains(&link.trim_start_matches('#').to_owned()), "{link}");
    }
    for label in values("aria-labelledby") {
        assert!(label.split(' ').all(|id| ids.contains(&id.to_owned())), "{label}");
    }
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
