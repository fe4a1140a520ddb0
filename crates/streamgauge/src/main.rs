//! The command line of the instrument. The library does all work.

use std::process::ExitCode;

use clap::Parser;
use streamgauge::{Exit, cli};

fn main() -> ExitCode {
    match cli::Arguments::parse().run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the program's own complaint")]
            {
                eprintln!("streamgauge: {error:#}");
            }
            Exit::Unusable.into()
        }
    }
}
