//! Certificates for servers with TLS. openssl makes them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Program;

/// Makes a certificate for 127.0.0.1 and localhost, signed with its own key, and writes both as
/// PEM. `name` is its common name.
///
/// # Panics
/// openssl fails, or takes longer than 30 s.
#[track_caller]
pub fn make(name: &str, certificate: &Path, key: &Path) {
    // Without openssl's own extensions, which make it the certificate of an authority.
    let request = format!(
        "[req]\nprompt = no\ndistinguished_name = who\nx509_extensions = for\n[who]\nCN = {name}\n\
         [for]\nsubjectAltName = IP:127.0.0.1, DNS:localhost\n"
    );
    let configuration = certificate.with_extension("cnf");
    std::fs::write(&configuration, request).expect("the folder of a certificate can be written");
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "30", "-config"]).arg(&configuration);
    openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
    Program::output(&mut openssl, Duration::from_secs(60));
    std::fs::remove_file(configuration).expect("it was written above");
}

/// Makes a certificate as [`make`] does, which expired on 2 January 2020.
///
/// # Panics
/// The same as those of [`make`].
#[track_caller]
pub fn make_expired(name: &str, certificate: &Path, key: &Path) {
    make(name, certificate, key);
    // `req` makes none whose time is over. An authority can, here with the certificate's own key.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [request, configuration, index] =
        ["request", "configuration", "index"].map(|name| folder.path().join(name));
    let authority = format!(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = {}\nnew_certs_dir = {}\ndefault_md = sha256\n\
         rand_serial = yes\npolicy = any\ncopy_extensions = copy\n[any]\ncommonName = supplied\n",
        index.display(),
        folder.path().display()
    );
    std::fs::write(&configuration, authority).expect("the folder is ours");
    std::fs::write(&index, "").expect("the folder is ours");
    let limit = Duration::from_secs(60);
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-x509toreq", "-copy_extensions", "copy", "-in"]).arg(certificate);
    Program::output(openssl.arg("-signkey").arg(key).arg("-out").arg(&request), limit);
    let mut openssl = Command::new("openssl");
    openssl.args(["ca", "-batch", "-selfsign", "-notext"]);
    openssl.args(["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]);
    openssl.arg("-config").arg(&configuration).arg("-keyfile").arg(key);
    Program::output(openssl.arg("-in").arg(&request).arg("-out").arg(certificate), limit);
}

/// The table of `headwater.toml` for HTTP with TLS on a free port.
pub fn table(certificate: &Path, key: &Path) -> String {
    format!("[http.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {certificate:?}\nkey = {key:?}\n")
}
