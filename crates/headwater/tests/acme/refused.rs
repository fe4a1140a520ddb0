//! Options that `headwater check` refuses.

use std::path::Path;

use headwater::config::Config;
use testkit::certificate;

fn refusal(lines: &str) -> String {
    let text = format!("[http.tls]\n{lines}");
    Config::parse(&text, Path::new("headwater.toml")).expect_err(&text).to_string()
}

#[test]
fn options_that_cannot_be_used_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, none] =
        ["cert.pem", "key.pem", "none"].map(|name| folder.path().join(name));
    certificate::make("a", &certificate, &key);
    let many: Vec<_> = (0..101).map(|number| format!("a{number}.example.org")).collect();
    let good = "domains = [\"example.org\"]\n";
    let acme = format!("{good}[http.tls.acme]\n");
    for (lines, said) in [
        (
            format!("certificate = {certificate:?}\nkey = {key:?}\n{good}"),
            "4: http.tls.domains: and http.tls.certificate exclude each other",
        ),
        (
            "domains = [\"*.example.org\"]\n".to_owned(),
            "2: http.tls.domains: \"*.example.org\" needs DNS-01",
        ),
        (
            "domains = [\"192.0.2.1\"]\n".to_owned(),
            "2: http.tls.domains: \"192.0.2.1\" is not a name",
        ),
        (
            "domains = [\"example.org.\"]\n".to_owned(),
            "2: http.tls.domains: \"example.org.\" is not",
        ),
        ("domains = [\"\"]\n".to_owned(), "2: http.tls.domains: \"\" is not a name"),
        ("domains = [\"a/b\"]\n".to_owned(), "2: http.tls.domains: \"a/b\" is not a name"),
        (
            "domains = [\"a.b\", \"A.b\"]\n".to_owned(),
            "2: http.tls.domains: \"A.b\" is there twice",
        ),
        (format!("domains = {many:?}\n"), "2: http.tls.domains: at most 100"),
        (format!("{acme}email = \"a@b, c@d\"\n"), "4: http.tls.acme.email: must be an address"),
        (format!("{acme}email = \"admin\"\n"), "4: http.tls.acme.email: must be an address"),
        (format!("{acme}directory = \"http://a/b\"\n"), "4: http.tls.acme.directory: must be like"),
        (format!("{acme}directory = \"\"\n"), "4: http.tls.acme.directory: must be like"),
        (format!("{acme}ca_root = {none:?}\n"), "4: http.tls.acme.ca_root: "),
        (format!("{acme}ca_root = {key:?}\n"), "4: http.tls.acme.ca_root: "),
        (format!("{acme}storage = \"\"\n"), "4: http.tls.acme.storage: must not be empty"),
        (
            format!("{acme}storage = \"media/acme\"\n"),
            "4: http.tls.acme.storage: is below vod.root",
        ),
        (format!("{acme}folder = \"\"\n"), "4: http.tls.acme.folder: unknown key"),
    ] {
        let refusal = refusal(&lines);
        assert!(refusal.starts_with(&format!("headwater.toml:{said}")), "{lines}{refusal}");
    }
    for lines in [
        good.to_owned(),
        format!("{acme}email = \"admin@example.org\"\nca_root = {certificate:?}\n"),
    ] {
        Config::parse(&format!("[http.tls]\n{lines}"), Path::new("headwater.toml")).unwrap();
    }
}
