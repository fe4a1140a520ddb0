//! Tables, read back from Markdown and HTML.

use std::fs;
use std::path::Path;

use streamgauge::lab::record::PeerVersion;

use crate::fixture::{Folder, parameters, trial};
use crate::rich;
use crate::usage::{SMALL, made};

/// The rows of the first table after a text in report.md.
fn markdown(folder: &Path, after: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder.join("report.md")).unwrap();
    let from = text.find(after).unwrap();
    let rows = text[from..].lines().skip_while(|line| !line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The cells in the body of a table of index.html.
fn html(folder: &Path, id: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder.join("index.html")).unwrap();
    let from = text.find(&format!("id=\"{id}\"")).unwrap();
    let body = text[from..].split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let body = format!("<tbody>{body}</tbody>");
    let tree = roxmltree::Document::parse(&body).unwrap();
    let texts = |row: roxmltree::Node<'_, '_>| {
        let cells = row.children().filter(roxmltree::Node::is_element);
        let words = |cell: roxmltree::Node<'_, '_>| {
            let parts = cell.descendants().filter(|part| part.is_text());
            parts.filter_map(|part| part.text()).collect::<Vec<_>>().join(" ")
        };
        cells.map(words).collect()
    };
    tree.root_element().children().map(texts).collect()
}

fn small(trials: &[(&str, f64, u32, f64)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let peers = [("a", "Server A", "1"), ("b", "Server B", "2")];
    let folder = Folder::new(place.path(), SMALL, 1.0, &peers);
    for (peer, clients, repetition, count) in trials {
        let metrics = [("count", *count)];
        folder.keep(&trial("one", &[("clients", *clients)], peer, *repetition, &metrics));
    }
    let report = made(&[place.path()]);
    (place, report)
}

#[test]
fn medians_spreads_ratios_and_what_only_the_study_has() {
    let (_place, report) = small(&[
        ("a", 1.0, 1, 10.0),
        ("a", 1.0, 2, 11.0),
        ("a", 1.0, 3, 10.5),
        ("a", 2.0, 1, 1234.5),
        ("b", 1.0, 1, 20.0),
    ]);
    let rows = markdown(&report, "**Table 1.**");
    let head = ["server", "1 client, measured", "1 client, published", "1 client, ratio"];
    assert_eq!(rows[0][..4], head);
    assert_eq!(
        rows[2],
        ["Server A", "10.5 (10.0–11.0)", "4.0", "2.62", "**1,234.5**", "0.0", "–"]
            .map(|cell| cell.replace("**", ""))
    );
    assert_eq!(rows[3][..4], ["Server B", "**20.0**", "–", "–"]);
    assert_eq!(rows[4][..4], ["C", "–", "7.0", "–"]);
    let rows = html(&report, "table-1");
    assert_eq!(rows[0], ["Server A", "10.5 10.0–11.0", "4.0", "2.62", "1,234.5", "0.0", "–"]);
    assert_eq!(rows[1][..4], ["Server B", "20.0", "–", "–"]);
}

#[test]
fn doubts_are_marked() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path(), SMALL, 1.0, &[]);
    let one = |peer, clients, repetition, count| {
        trial("one", &[("clients", clients)], peer, repetition, &[("count", count)])
    };
    folder.keep(&one("a", 1.0, 1, 100.0));
    folder.keep(&one("a", 1.0, 2, 130.0));
    let mut saturated = one("a", 2.0, 1, 5.0);
    saturated.saturated = true;
    folder.keep(&saturated);
    let mut busy = one("b", 1.0, 1, 5.0);
    busy.metrics.insert("other_cpu_percent".to_owned(), 5.1);
    folder.keep(&busy);
    let mut failed = one("b", 2.0, 1, 5.0);
    failed.failed = Some("it did not start".to_owned());
    folder.keep(&failed);
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 1.**");
    let named: Vec<(String, String)> =
        rows[0].iter().cloned().zip(rows[2].iter().cloned()).collect();
    assert!(
        named.contains(&("1 client, measured".to_owned(), "115.0‡ (100.0–130.0)".to_owned())),
        "{named:?}"
    );
    assert!(named.contains(&("2 clients, measured".to_owned(), "5.0†".to_owned())), "{named:?}");
    assert!(
        rows[3].contains(&"5.0‡".to_owned()) && rows[3].contains(&"failed".to_owned()),
        "{rows:?}"
    );
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    for said in ["† The generator", "‡ Noisy", "b, repetition 1 failed: it did not start"] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn a_server_that_refuses_work_is_never_the_best() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path(), SMALL, 1.0, &[]);
    for (peer, errors, satisfied, count) in [
        ("a", 0.0, 90.0, 10.0),
        ("b", 3.0, 100.0, 90.0),
        ("c", 0.0, 100.0, 9.0),
        ("d", 0.0, 89.0, 80.0),
    ] {
        let metrics = [("count", count), ("errors", errors), ("satisfied_percent", satisfied)];
        folder.keep(&trial("one", &[("clients", 1.0)], peer, 1, &metrics));
    }
    // Only one of two repetitions could tell.
    folder.keep(&trial("one", &[("clients", 1.0)], "e", 1, &[("count", 70.0)]));
    folder.keep(&trial("one", &[("clients", 1.0)], "e", 2, &[("errors", 0.0)]));
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 1.**");
    let cells: Vec<&String> = (2..7).map(|row| &rows[row][1]).collect();
    assert_eq!(cells, ["**10.0**", "90.0¶", "9.0", "80.0¶", "70.0¶"]);
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("¶ Requests or viewers failed"), "{text}");
}

#[test]
fn a_scaled_run_is_no_share_of_what_was_published() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path(), SMALL, 0.5, &[]);
    let mut scaled = trial("one", &[("clients", 1.0)], "a", 1, &[("count", 10.0)]);
    scaled.scaled = parameters(&[("clients", 0.5)]);
    folder.keep(&scaled);
    let report = made(&[place.path()]);
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("No ratio where the run was scaled"), "{text}");
    assert!(!markdown(&report, "**Table 1.**")[0].iter().any(|head| head.contains("ratio")));
}

#[test]
fn runs_of_different_machines_stay_apart() {
    let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for (place, memory, processor) in
        [(0, 16 << 30, "A"), (1, (16 << 30) - 4096, "A"), (2, 16 << 30, "B")]
    {
        let folder = Folder::new(places[place].path(), SMALL, 1.0, &[]);
        let mut run = folder.read_run();
        (run.machine.memory, run.machine.processor) = (memory, processor.to_owned());
        folder.run(&run);
        folder.keep(&trial("one", &[("clients", 1.0)], "a", 1, &[("count", 10.0)]));
    }
    let report = made(&places.each_ref().map(|place| place.path()));
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert_eq!(page.matches("id=\"table-1\"").count() + page.matches("id=\"table-2\"").count(), 2);
    assert!(!page.contains("id=\"table-3\""));
}

#[test]
fn builds_of_one_version_are_told_apart() {
    let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
    // The oldest run names no build.
    for (place, build) in places.iter().zip(["", "aaaaaaaaaaaa", "bbbbbbbbbbbb"]) {
        let folder = Folder::new(place.path(), SMALL, 1.0, &[("a", "A", "1.0")]);
        let mut run = folder.read_run();
        run.peers.get_mut("a").unwrap().build = build.to_owned();
        if !build.is_empty() {
            run.instrument = PeerVersion { title: "gauge".to_owned(), ..run.peers["a"].clone() };
        }
        folder.run(&run);
        folder.keep(&trial("one", &[("clients", 1.0)], "a", 1, &[("count", 10.0)]));
    }
    let report = made(&places.each_ref().map(|place| place.path()));
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    let builds = "1.0 (build aaaaaaaaaaaa); 1.0 (build bbbbbbbbbbbb)";
    for warned in ["A is of several versions: ", "the runs were measured by several builds: "] {
        assert!(page.contains(&format!("{warned}{builds}")), "{warned}: {page}");
    }
    // The run without a build may be of either.
    let report = made(&places.each_ref().map(|place| place.path())[..2]);
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("1.0 (build aaaaaaaaaaaa)") && !page.contains("several"), "{page}");
}

#[test]
fn stand_ins_are_compared_with_the_studys_server() {
    let place = tempfile::tempdir().unwrap();
    rich::write(place.path(), 1.0);
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 2.**");
    assert_eq!(rows[0][..3], ["server", "", "400 clients, 60 s"]);
    assert_eq!(rows[2][..3], ["nginx-rtmp", "measured", "394"]);
    assert_eq!(rows[3][..3], ["", "published (nginx)", "400"]);
    assert_eq!(rows[4][..3], ["", "ratio", "0.98"]);
    assert_eq!(rows[6][..3], ["Wowza", "published", "166"]);
    // The page has the same cells. Each row has all of its headings, so that it can be sorted.
    let page = html(&report, "table-2");
    assert_eq!(page[0][..3], ["nginx-rtmp", "measured", "394"]);
    assert_eq!(page[1][..3], ["nginx-rtmp", "published (nginx)", "400"]);
    assert_eq!(page[4][..3], ["Wowza", "published", "166"]);
}

#[test]
fn markdown_tables_are_rectangular() {
    let place = tempfile::tempdir().unwrap();
    rich::write(place.path(), 1.0);
    let report = made(&[place.path()]);
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    let bars = |row: &str| row.replace("\\|", "").matches('|').count();
    let rows: Vec<&str> = text.lines().collect();
    let mut tables = 0;
    for pair in rows.windows(2).filter(|pair| pair.iter().all(|row| row.starts_with('|'))) {
        assert_eq!(bars(pair[0]), bars(pair[1]), "{pair:?}");
        tables += usize::from(pair[1].starts_with("| ---"));
    }
    assert_eq!(tables, 5);
    // The file of every shown figure exists.
    let shown: Vec<&str> =
        text.lines().filter_map(|row| row.split("](").nth(1)?.strip_suffix(')')).collect();
    assert_eq!(shown.len(), 18);
    assert!(shown.iter().all(|file| report.join(file).exists()), "{shown:?}");
}

#[test]
fn pooled_parameters_are_named() {
    let place = tempfile::tempdir().unwrap();
    let scenario = SMALL.replace("clients = [1, 2]", "clients = [1, 2]\nduration = [60, 300]");
    let folder = Folder::new(place.path(), &scenario, 1.0, &[]);
    for (duration, count) in [(60.0, 2.0), (300.0, 6.0)] {
        let of = [("clients", 1.0), ("duration", duration)];
        folder.keep(&trial("one", &of, "a", 1, &[("count", count)]));
    }
    let report = made(&[place.path()]);
    assert_eq!(markdown(&report, "**Table 1.**")[2][..2], ["a", "4.0 (2.0–6.0)"]);
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("Each figure is the median over 60 s, 300 s."), "{text}");
}

#[test]
fn percentiles_beyond_the_requests_are_left_out_and_the_requests_are_told() {
    let place = tempfile::tempdir().unwrap();
    let values = "values = [{ metric = \"latency_p99_ms\", digits = 1 }, \
                  { metric = \"latency_p99_9_ms\", digits = 1 }]";
    let count = "values = [{ metric = \"count\", digits = 1, better = \"more\" }]";
    let scenario = SMALL.replace(count, values);
    let folder = Folder::new(place.path(), &scenario, 1.0, &[]);
    for (peer, responses) in [("a", 150.0), ("b", 1000.0)] {
        let metrics =
            [("latency_p99_ms", 2.0), ("latency_p99_9_ms", 5.0), ("responses", responses)];
        folder.keep(&trial("one", &[("clients", 1.0)], peer, 1, &metrics));
    }
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 2.**");
    assert_eq!(rows[2][..3], ["a", "2.0", "–"], "{rows:?}");
    assert_eq!(rows[3][..3], ["b", "2.0", "5.0"], "{rows:?}");
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("Percentiles are of 150 to 1,000 requests"), "{text}");
}

#[test]
fn what_a_shorter_load_would_change_is_left_out_where_the_load_was_scaled() {
    let place = tempfile::tempdir().unwrap();
    let values = "values = [{ metric = \"count\", digits = 1, whole = true }, \
                  { metric = \"memory\", digits = 1 }]";
    let count = "values = [{ metric = \"count\", digits = 1, better = \"more\" }]";
    let figure = "[[figure]]\ntitle = \"F\"\nkind = \"bars\"\nload = \"one\"\ny = \"count\"\n\
                  whole = true\n";
    let scenario = SMALL.replace(count, values) + figure;
    let folder = Folder::new(place.path(), &scenario, 0.25, &[]);
    for peer in ["a", "b"] {
        let mut one =
            trial("one", &[("clients", 1.0)], peer, 1, &[("count", 3.0), ("memory", 5.0)]);
        one.scaled = if peer == "a" { parameters(&[("duration", 2.0)]) } else { parameters(&[]) };
        folder.keep(&one);
    }
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 1.**");
    let of = |name: &str| {
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        row.iter().filter(|cell| ["3.0", "5.0"].contains(&cell.as_str())).cloned().collect()
    };
    let (a, b): (Vec<String>, Vec<String>) = (of("a"), of("b"));
    assert_eq!((a, b), (vec!["5.0".to_owned()], vec!["3.0".to_owned(), "5.0".to_owned()]));
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert_eq!(text.matches("Left out where the run was scaled").count(), 2, "{text}");
}

#[test]
fn averages_are_the_means_of_the_figures_shown() {
    let place = tempfile::tempdir().unwrap();
    let scenario = SMALL
        .replace(
            "rows = [\"peer\"]\ncolumns = [\"clients\"]",
            "rows = [\"clients\"]\naverage = \"clients\"",
        )
        .replace("clients = [1, 2]", "batches = [1, 2]\n[load.derive]\nclients = \"batches * 1\"")
        .replace("C,1,7\n", "A,Average,5\nC,1,7\nC,Average,7\n");
    let folder = Folder::new(place.path(), &scenario, 1.0, &[]);
    // Medians of 2 and 7. The second peer lacks one of them.
    for (peer, clients, repetition, count) in
        [("a", 1.0, 1, 1.0), ("a", 1.0, 2, 3.0), ("a", 2.0, 1, 7.0), ("b", 1.0, 1, 4.0)]
    {
        folder.keep(&trial("one", &[("clients", clients)], peer, repetition, &[("count", count)]));
    }
    let mut failed = trial("one", &[("clients", 2.0)], "b", 1, &[]);
    failed.failed = Some("it did not start".to_owned());
    folder.keep(&failed);
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 1.**");
    assert_eq!(rows[0][..3], ["server", "clients", "count, measured"], "{rows:?}");
    assert_eq!(rows[4][..4], ["", "Average", "4.5‡", "5.0"], "{rows:?}");
    assert_eq!(rows[7][..3], ["", "Average", "failed"], "{rows:?}");

    // A case that never ran is missing, too.
    let other = tempfile::tempdir().unwrap();
    let folder = Folder::new(other.path(), &scenario, 1.0, &[]);
    for (peer, clients) in [("a", 1.0), ("a", 2.0), ("b", 1.0)] {
        folder.keep(&trial("one", &[("clients", clients)], peer, 1, &[("count", 4.0)]));
    }
    let rows = markdown(&made(&[other.path()]), "**Table 1.**");
    let averages: Vec<_> = rows.iter().filter(|row| row[1] == "Average").collect();
    assert_eq!((&*averages[0][2], &*averages[1][2]), ("4.0", "–"), "{rows:?}");
}

#[test]
fn cells_say_what_limited_the_server() {
    let place = tempfile::tempdir().unwrap();
    let scenario = SMALL
        .replace("with = \"http\"", "with = \"http\"\nlink = \"700mbit\"")
        .replace("headline = true", "headline = true\nlimits = true")
        .replace("clients = [1, 2]", "clients = [1, 2, 3, 4, 5, 6, 7, 8, 9]");
    let folder = Folder::new(place.path(), &scenario, 1.0, &[]);
    // Servers of this run have four processors.
    for (clients, link, link_peak, cores, cores_peak, thread, saturated) in [
        (1.0, 650.0, 700.0, 3.0, 4.0, 0.95, true),
        (2.0, 474.0, 700.0, 3.9, 4.0, 0.98, false),
        (3.0, 100.0, 300.0, 1.0, 2.0, 0.5, true),
        (4.0, 100.0, 690.0, 1.0, 2.0, 0.5, false),
        (5.0, 100.0, 300.0, 1.0, 2.0, 0.5, false),
        (6.0, 100.0, 300.0, 1.0, 4.0, 0.5, true),
        (8.0, 100.0, 690.0, 1.0, 1.2, 0.95, true),
    ] {
        let metrics = [
            ("count", 5.0),
            ("out_mbit_mean", link),
            ("out_mbit_peak", link_peak),
            ("server_cores", cores),
            ("server_cores_peak", cores_peak),
            ("server_thread_cores", thread),
        ];
        let mut one = trial("one", &[("clients", clients)], "a", 1, &metrics);
        one.saturated = saturated;
        folder.keep(&one);
    }
    // Of a run without these figures nothing is known.
    folder.keep(&trial("one", &[("clients", 7.0)], "a", 1, &[("count", 5.0)]));
    // Older runs do not know of threads.
    let old = [("count", 5.0), ("server_cores", 1.0), ("server_cores_peak", 1.0)];
    folder.keep(&trial("one", &[("clients", 9.0)], "a", 1, &old));
    let report = made(&[place.path()]);
    let rows = markdown(&report, "**Table 1.**");
    let measured: Vec<_> = rows[2].iter().filter(|cell| cell.starts_with("5.0")).collect();
    let said = ["5.0†, *link*", "5.0, *processors*", "5.0†, *clients*", "5.0, *link at times*"];
    assert_eq!(measured[..4], said, "{rows:?}");
    let said = [
        "5.0, *nothing*",
        "5.0†, *processors at times*",
        "5.0",
        "5.0†, *one thread*",
        "5.0, *nothing*",
    ];
    assert_eq!(measured[4..], said, "{rows:?}");
    assert!(html(&report, "table-1")[0].contains(&"5.0 processors".to_owned()));
    let text = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(text.contains("Italic: what limited the server."), "{text}");
}

#[test]
fn tables_may_show_some_of_the_servers() {
    let place = tempfile::tempdir().unwrap();
    let scenario =
        SMALL.replace("rows = [\"peer\"]", "rows = [\"peer\"]\nwhere = { peer = [\"b\", \"c\"] }");
    let folder = Folder::new(place.path(), &scenario, 1.0, &[]);
    for peer in ["a", "b", "c"] {
        folder.keep(&trial("one", &[("clients", 1.0)], peer, 1, &[("count", 5.0)]));
    }
    let rows = markdown(&made(&[place.path()]), "**Table 1.**");
    let heads: Vec<_> = rows[2..].iter().map(|row| &row[0]).collect();
    assert_eq!(heads, ["b", "c", "A", "C"], "{rows:?}");
}
