//! Writes a run with invented figures of every kind. It serves to see how `streamgauge report`
//! shows them: `cargo run -p streamgauge --example report_fixture -- DIR [SCALE]`.

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "the tests' own files"
)]

#[path = "../tests/report/fixture.rs"]
mod fixture;
#[path = "../tests/report/rich.rs"]
mod rich;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "report-fixture".into());
    let scale = arguments.next().and_then(|scale| scale.to_str()?.parse().ok());
    rich::write(folder.as_ref(), scale.unwrap_or(1.0));
}
