//! Figures are well-formed and inside their frames, and no text covers other text.

use std::fs;
use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};
use streamgauge::lab::record::Trial;

use crate::fixture::{Folder, histogram, meter, trial};
use crate::rich;
use crate::usage::{SMALL, made};

fn svgs(report: &Path) -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(report.join("figures")).unwrap();
    files
        .map(|file| file.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// All numbers in a path or in coordinates.
fn numbers(text: &str) -> Vec<f64> {
    let apart = |letter: char| letter.is_ascii_alphabetic() || letter == ' ' || letter == ',';
    text.split(apart).filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}

/// The smallest area that a text needs: no font is narrower on average.
fn area(text: Node<'_, '_>) -> (f64, f64, f64, f64) {
    let of = |name| text.attribute(name).map_or(12.0, |value: &str| value.parse::<f64>().unwrap());
    let (x, y, size) = (of("x"), of("y"), of("font-size"));
    let width = 0.45 * size * text.text().unwrap_or_default().chars().count() as f64;
    let left = match text.attribute("text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    (left, y - 0.7 * size, left + width, y)
}

fn check(path: &Path, svg: &str) {
    let name = path.display();
    let tree = Document::parse(svg).unwrap_or_else(|error| panic!("{name}: {error}"));
    let root = tree.root_element();
    let frame = numbers(root.attribute("viewBox").unwrap());
    let (width, height) = (frame[2], frame[3]);
    let inside = |x: f64, y: f64, what: &str| {
        let fits = (-0.5..=width + 0.5).contains(&x) && (-0.5..=height + 0.5).contains(&y);
        assert!(fits, "{name}: {what} at {x}, {y}");
    };
    assert!(width <= 1000.0 && height <= 6000.0 && svg.len() < 500_000, "{name}");
    for kind in ["title", "desc"] {
        let said = root
            .children()
            .find(|node| node.has_tag_name((root.tag_name().namespace().unwrap(), kind)));
        assert!(!said.unwrap().text().unwrap().is_empty(), "{name}: {kind}");
    }
    let mut texts = Vec::new();
    for node in root.descendants().filter(Node::is_element) {
        for (x, y) in [("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")] {
            if let (Some(x), Some(y)) = (node.attribute(x), node.attribute(y)) {
                inside(x.parse().unwrap(), y.parse().unwrap(), node.tag_name().name());
            }
        }
        match node.attribute("d") {
            // Markers have relative coordinates and are small.
            Some(data) if !data.contains('a') => {
                for place in numbers(data).chunks(2) {
                    inside(place[0], place[1], "path");
                }
            }
            _ => {}
        }
        if node.tag_name().name() == "text" {
            let (left, top, right, bottom) = area(node);
            inside(left, top, node.text().unwrap());
            inside(right, bottom, node.text().unwrap());
            texts.push((node.text().unwrap(), (left, top, right, bottom)));
        }
    }
    for (index, (one, a)) in texts.iter().enumerate() {
        for (other, b) in &texts[index + 1..] {
            let apart = a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1;
            assert!(apart, "{name}: {one:?} and {other:?}");
        }
    }
}

#[test]
fn every_figure_is_well_formed_and_legible() {
    let place = tempfile::tempdir().unwrap();
    rich::write(place.path(), 1.0);
    let svgs = svgs(&made(&[place.path()]));
    assert_eq!(svgs.len(), 18);
    for (path, svg) in &svgs {
        check(path, svg);
    }
}

const AGAINST: &str = r#"
[[figure]]
title = "F"
kind = "against"
load = "one"
x = "clients"
y = "rate"
threshold = 100
[[figure]]
title = "B"
kind = "bars"
load = "one"
y = "rate"
group = "clients"
[[figure]]
title = "T"
kind = "time"
load = "one"
y = "server_cpu_percent"
[[figure]]
title = "P"
kind = "percentiles"
load = "one"
histogram = "latency"
"#;

#[test]
fn extreme_values_stay_inside() {
    let extremes = [f64::MAX, -1e300, 1e-300, 0.0, -5.0, 1e15, 3.0];
    for (index, first) in extremes.into_iter().enumerate() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path(), &format!("{SMALL}{AGAINST}"), 1.0, &[]);
        for (peer, value) in [("a", first), ("b", extremes[(index + 3) % extremes.len()])] {
            for clients in [1.0, 2.0, 1e300] {
                let kept = folder.keep(&trial(
                    "one",
                    &[("clients", clients)],
                    peer,
                    1,
                    &[("rate", value), ("count", value)],
                ));
                meter(&kept, 5, |_| (value, value));
                histogram(&kept, "latency", [0.0, 0.001, value.clamp(0.0, 1e9)], true);
            }
        }
        for (path, svg) in svgs(&made(&[place.path()])) {
            check(&path, &svg);
        }
    }
}

#[test]
fn inflexion_points_are_interpolated_and_named() {
    let place = tempfile::tempdir().unwrap();
    let peers = [("a", "A", "1"), ("b", "B", "1"), ("c", "C", "1"), ("d", "D", "1")];
    let folder = Folder::new(place.path(), &format!("{SMALL}{AGAINST}"), 1.0, &peers);
    for (clients, a, b) in [(100.0, 400.0, 300.0), (1100.0, 150.0, 250.0), (1200.0, 50.0, 200.0)] {
        for (peer, rate) in [("a", a), ("b", b)] {
            folder.keep(&trial("one", &[("clients", clients)], peer, 1, &[("rate", rate)]));
        }
    }
    // C does not start at 1,100, and holds 1,200. D has no figure before it fails.
    let failed = |clients, peer| {
        let kept = trial("one", &[("clients", clients)], peer, 1, &[]);
        Trial { failed: Some("it did not start".to_owned()), ..kept }
    };
    folder.keep(&trial("one", &[("clients", 100.0)], "c", 1, &[("rate", 300.0)]));
    folder.keep(&failed(1100.0, "c"));
    folder.keep(&trial("one", &[("clients", 1200.0)], "c", 1, &[("rate", 200.0)]));
    folder.keep(&failed(100.0, "d"));
    folder.keep(&trial("one", &[("clients", 1100.0)], "d", 1, &[("rate", 300.0)]));
    let report = made(&[place.path()]);
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    for said in [
        "Inflexion point of A: 1,150 clients.",
        "B held up to 1,200 clients, the last value.",
        "C held up to 100 clients. At 1,100 every trial failed.",
        "D: at 100 clients every trial failed.",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let svg = fs::read_to_string(report.join("figures/figure-1-1.svg")).unwrap();
    let tree = Document::parse(&svg).unwrap();
    let texts: Vec<&str> = tree
        .descendants()
        .filter(|node| node.tag_name().name() == "text")
        .filter_map(|node| node.text())
        .collect();
    assert!(texts.contains(&"1,150") && texts.contains(&"threshold 100"), "{texts:?}");
}

#[test]
fn the_expected_curve_shares_what_the_first_clients_got() {
    let place = tempfile::tempdir().unwrap();
    let scenario = format!("{SMALL}{AGAINST}").replacen(
        "threshold = 100\n",
        "threshold = 100\nexpected = true\n",
        1,
    );
    let folder = Folder::new(place.path(), &scenario, 1.0, &[("a", "A", "1")]);
    for (clients, rate) in [(100.0, 400.0), (200.0, 350.0), (800.0, 30.0)] {
        folder.keep(&trial("one", &[("clients", clients)], "a", 1, &[("rate", rate)]));
    }
    let report = made(&[place.path()]);
    let svg = fs::read_to_string(report.join("figures/figure-1-1.svg")).unwrap();
    // 100 clients got 40,000 together.
    assert!(svg.contains("A, expected: 400 at 100, 50.0 at 800"), "{svg}");
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("Expected inflexion point of A: 400 clients."), "{text}");
}

#[test]
fn histograms_of_repetitions_are_merged_in_milliseconds() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(
        place.path(),
        &format!("{SMALL}{AGAINST}"),
        1.0,
        &[("a", "A", "1"), ("b", "B", "1")],
    );
    // The histograms of `a` come from `http`, those of `b` from `viewers`.
    for (peer, nanos) in [("a", true), ("b", false)] {
        for repetition in 1..=2 {
            let kept = folder.keep(&trial("one", &[("clients", 1.0)], peer, repetition, &[]));
            let millis = if repetition == 1 { 2.0 } else { 50.0 };
            histogram(&kept, "latency", vec![millis; 100], nanos);
        }
    }
    let report = made(&[place.path()]);
    // The trials have none of the metrics of the first three figures.
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    for figure in ["1.** F", "2.** B", "3.** T"] {
        let nothing = format!("**Figure {figure}. No trial measured what this figure shows.");
        assert!(text.contains(&nothing), "{text}");
    }
    assert!(!report.join("figures/figure-1-1.svg").exists());
    let svg = fs::read_to_string(report.join("figures/figure-4-1.svg")).unwrap();
    for peer in ["A", "B"] {
        assert!(svg.contains(&format!("{peer}: median of the line 50")), "{svg}");
    }
    // Half of all answers took 2 ms. The line begins there.
    assert!(svg.contains(">2<") && svg.contains(">50<"), "{svg}");
}

/// The colours of the lines in a figure, by the peer whose name stands in their hints.
fn colour<'a>(svg: &'a str, peer: &str) -> &'a str {
    let at = svg.find(&format!("<title>{peer}</title>")).unwrap();
    let line = &svg[svg[..at].rfind("<path").unwrap()..at];
    line.split("stroke=\"").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn a_peer_has_one_colour_in_all_studies_of_a_report() {
    let place = tempfile::tempdir().unwrap();
    let names = ["one", "two"].map(|name| place.path().join(name));
    // The peers are in another order in the second study, and the first of them is in it alone.
    let second = SMALL.replace("[\"a\", \"b\"]", "[\"c\", \"b\", \"a\"]");
    for (path, scenario) in [(&names[0], SMALL), (&names[1], &second)] {
        let scenario = format!("{scenario}{AGAINST}");
        let peers = [("a", "A", "1"), ("b", "B", "1"), ("c", "C", "1")];
        let only = if path == &names[0] { &peers[..2] } else { &peers[..] };
        let folder = Folder::new(path, &scenario, 1.0, only);
        for clients in [1.0, 2.0] {
            for (peer, _, _) in only {
                folder.keep(&trial("one", &[("clients", clients)], peer, 1, &[("rate", clients)]));
            }
        }
    }
    let report = made(&[&names[0], &names[1]]);
    let svg = |number: u32| {
        fs::read_to_string(report.join(format!("figures/figure-{number}-1.svg"))).unwrap()
    };
    let (first, second) = (svg(1), svg(5));
    for peer in ["A", "B"] {
        assert_eq!(colour(&first, peer), colour(&second, peer), "{peer}");
    }
    assert!(["A", "B"].iter().all(|peer| colour(&second, peer) != colour(&second, "C")));
}

#[test]
fn plots_share_axes_only_where_none_would_be_nearly_empty() {
    const TWO: &str = r#"
[[figure]]
title = "F"
kind = "against"
load = "one"
x = "clients"
y = "rate"
"#;
    for (slow, shared) in [(90.0, true), (9.0, false)] {
        let place = tempfile::tempdir().unwrap();
        let scenario =
            format!("{SMALL}{TWO}").replace("clients = [1, 2]", "clients = [1, 2]\nsize = [1, 2]");
        let folder = Folder::new(place.path(), &scenario, 1.0, &[("a", "A", "1")]);
        for clients in [1.0, 2.0] {
            for (size, rate) in [(1.0, 100.0), (2.0, slow)] {
                let parameters = [("clients", clients), ("size", size)];
                folder.keep(&trial("one", &parameters, "a", 1, &[("rate", rate)]));
            }
        }
        let report = made(&[place.path()]);
        let text = fs::read_to_string(report.join("report.md")).unwrap();
        assert_ne!(text.contains("Each plot has axes of its own"), shared, "{slow}");
        let svg = fs::read_to_string(report.join("figures/figure-1-2.svg")).unwrap();
        assert_eq!(svg.contains(">100<"), shared, "{slow}");
    }
}
