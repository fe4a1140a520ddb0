//! Server architectures of the literature, each in one file of [`models`], to be measured beside
//! the origin: `baseline MODEL --listen ADDR --root DIR`.
//!
//! # Which paper, which figure
//!
//! | model | the paper | the figure to repeat |
//! |---|---|---|
//! | [`threadpool`] | Zheng and Gonzalez, *Optimizing Single Server Content Streaming* (2021), 4.3 | 9 to 12: latency by percentile at 100 and 1,000 requests a second |
//! | the same in C: `lab/peers/threadpool` | the same, in the paper's own language | the same; beside the model here it tells language from architecture |
//! | [`hyper`] | the same, 4.1: the "distributor" | 9 and 10 |
//! | [`simple`] | Zhuang and He, *Implementation and Performance Testing of Different HTTP Servers* (2021), 1.1 | tables 2 to 4: `ab -n 100 -c 10`, `ab -n 100 -c 1`, `httperf --num-conns=3000` |
//! | [`persistent`] | the same, 1.2 | the same |
//! | [`pipelined`] | the same, 1.3 | the same |
//! | [`staged`] | the same, 5.1: what its authors would build next | none was published |
//! | [`limit`] | none: what the kernel allows | the bound for all of them |
//!
//! Node.js and Deno, the other servers in the 2021 streaming paper, are separate programs.
//!
//! # What the models share, and why
//!
//! Everything that does not depend on the architecture is written once, in [`http`]: httparse
//! parses heads, ranges, dates and media types mean the same everywhere, and the kernel keeps every
//! path inside the root. Each model decides which threads read, send, and wait for others. Four of
//! them have a thread per connection and share [`net::thread_each`].
//!
//! # Differences from the papers
//!
//! - Input is limited and checked: heads of at most 8 KiB (431), the statuses 400, 404, 405 and 416
//!   where they apply, and no path outside the root. The papers' servers check nothing ("without
//!   performing security checks") and read whatever they are sent.
//! - Memory is limited. Where a paper's server keeps a whole response in memory, whatever its size,
//!   these keep at most [`models::PIECE`] of it at a time. Where it starts a thread for every
//!   connection, there are at most `--threads`. So a connection holds one piece. With a queue it
//!   also holds as many pieces as the queue has places, and one that is being sent.
//! - A silent peer has `--timeout` (10 s) to finish a head, to send the next one, or to take data.
//!   The papers' servers wait forever.
//! - All models speak today's HTTP: `Date`, `Content-Length`, `Connection`, HEAD and single ranges.
//!   Where the model keeps connections, HTTP/1.1 connections persist by default. The papers name
//!   `If-Modified-Since` as the only conditional request. `If-Range` with a date is added, because
//!   players use it to resume. There are no entity tags and no answers with several ranges.
//! - `Host` is not required, because the second paper's own commands do not send it.
//! - `TCP_NODELAY` is set everywhere, so that delayed acknowledgements do not affect any figure.
//!   `--nagle` leaves it off to show the effect (hyper's server of 2021 had it off by default). It
//!   and the time-outs are set on the listener, from which accepted connections inherit them in
//!   Linux.
//! - Left out: logging (the second paper's servers print every request), and handling of SIGTERM:
//!   its default ends the process at once, and nothing needs saving.

mod http;
mod models;
mod net;
mod units;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::http::Root;
use crate::models::{hyper, limit, persistent, pipelined, simple, staged, threadpool, uring};

/// A server with an architecture of the literature, to be measured beside the origin.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    model: Model,
}

#[derive(Subcommand)]
enum Model {
    /// One thread accepts into a bounded buffer, N workers block on it; one request per connection
    Threadpool {
        #[command(flatten)]
        site: Site,
        /// Worker threads
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = units::count)]
        workers: usize,
        /// Slots of the shared buffer
        #[arg(long, value_name = "N", default_value_t = 16, value_parser = units::count)]
        queue: usize,
    },
    /// A thread per connection, one request, close
    Simple {
        #[command(flatten)]
        site: Site,
        #[command(flatten)]
        threads: Threads,
    },
    /// A thread per connection, kept alive
    Persistent {
        #[command(flatten)]
        site: Site,
        #[command(flatten)]
        threads: Threads,
    },
    /// Like persistent, but another thread sends while the next request is handled
    Pipelined {
        #[command(flatten)]
        site: Site,
        #[command(flatten)]
        threads: Threads,
        /// Responses that may wait for a connection's sender
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = units::count)]
        queue: usize,
    },
    /// Three threads per connection: receive and parse, read, send
    Staged {
        #[command(flatten)]
        site: Site,
        #[command(flatten)]
        threads: Threads,
        /// How many items may wait between two stages of a connection: requests, then blocks of a
        /// file
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = units::count)]
        queue: usize,
    },
    /// tokio and hyper, reading from disk for each request: the 2021 distributor
    Hyper {
        #[command(flatten)]
        site: Site,
        /// Threads of the runtime; one for each core if not given
        #[arg(long, value_name = "N", value_parser = units::count)]
        workers: Option<usize>,
        /// Most bytes of a file read at a time
        #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = units::size)]
        read_size: usize,
    },
    /// No HTTP: sends N bytes of a file for each byte received
    Limit {
        #[command(flatten)]
        listen: Listen,
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Bytes of it to send; all of it if not given
        #[arg(long, value_name = "SIZE", value_parser = units::size)]
        bytes: Option<usize>,
        /// Send from memory with write instead of from the file with sendfile
        #[arg(long)]
        write: bool,
        /// Send to all clients in this interval, without being asked
        #[arg(long, value_name = "TIME", value_parser = units::time)]
        broadcast: Option<Duration>,
        /// Use io_uring instead of epoll, in one loop
        #[arg(long, requires = "write", conflicts_with = "workers")]
        uring: bool,
        /// Event loops
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = units::count)]
        workers: usize,
    },
}

#[derive(Args)]
struct Listen {
    /// Where to listen; port 0 for a free one
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// How long a peer may be silent, or take nothing: 500ms, 10s, 1m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time)]
    timeout: Duration,
    /// Leave TCP_NODELAY off, as in servers that do not set it
    #[arg(long)]
    nagle: bool,
}

#[derive(Args)]
struct Site {
    #[command(flatten)]
    listen: Listen,
    /// The served folder
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
}

impl Listen {
    fn bind(&self) -> anyhow::Result<TcpListener> {
        net::listen(self.listen, self.timeout, !self.nagle).with_context(|| self.listen.to_string())
    }
}

impl Site {
    fn open(&self) -> anyhow::Result<(TcpListener, Root)> {
        let root = Root::open(&self.root).with_context(|| self.root.display().to_string())?;
        Ok((self.listen.bind()?, root))
    }
}

#[derive(Args)]
struct Threads {
    /// Most connections at a time; further ones wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = units::count)]
    threads: usize,
}

fn main() -> ExitCode {
    match run(Arguments::parse().model) {
        Ok(never) => match never {},
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one thing there is to say")]
            {
                eprintln!("baseline: {error:#}");
            }
            ExitCode::from(2)
        }
    }
}

/// Serves until the process is ended. Returns only when it cannot start.
fn run(model: Model) -> anyhow::Result<Infallible> {
    let endless = match model {
        Model::Threadpool { site, workers, queue } => {
            let (listener, root) = site.open()?;
            threadpool::run(&listener, &Arc::new(root), workers, queue, site.listen.timeout)
        }
        Model::Simple { site, threads } => {
            let (listener, root) = site.open()?;
            simple::run(&listener, root, threads.threads, site.listen.timeout)
        }
        Model::Persistent { site, threads } => {
            let (listener, root) = site.open()?;
            persistent::run(&listener, root, threads.threads, site.listen.timeout)
        }
        Model::Pipelined { site, threads, queue } => {
            let (listener, root) = site.open()?;
            pipelined::run(&listener, root, threads.threads, queue, site.listen.timeout)
        }
        Model::Staged { site, threads, queue } => {
            let (listener, root) = site.open()?;
            staged::run(&listener, root, threads.threads, queue, site.listen.timeout)
        }
        Model::Hyper { site, workers, read_size } => {
            let (listener, root) = site.open()?;
            hyper::run(listener, root, workers, read_size, site.listen.timeout)
        }
        Model::Limit { listen, file, bytes, write, broadcast, uring, workers } => {
            let source = limit::Source::open(&file, bytes, write)
                .with_context(|| file.display().to_string())?;
            match source {
                limit::Source::Memory(bytes) if uring => {
                    uring::run(listen.bind()?, bytes, listen.timeout, broadcast)
                }
                source => limit::run(listen.bind()?, source, workers, listen.timeout, broadcast),
            }
        }
    };
    Ok(endless?)
}
