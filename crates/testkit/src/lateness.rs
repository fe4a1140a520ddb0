//! How late a server's answers are.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Server;
use crate::http::Client;

/// Time between two requests to the server.
const EVERY: Duration = Duration::from_millis(20);
/// The longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures how late a server answers at most. It answers at once, so that is for how long Linux did not run it, or the
/// test itself.
pub struct Lateness {
    /// The longest time, and since when it measures the next. Of a server that does not answer nothing is known.
    noted: Arc<Mutex<(Duration, Option<Instant>)>>,
}

impl Lateness {
    /// Measures until the server ends.
    pub fn of(server: &Server) -> Self {
        let address = server.http;
        let noted = Arc::new(Mutex::new((Duration::ZERO, Some(Instant::now()))));
        let notes = Arc::clone(&noted);
        let measure = move |notes: &Mutex<(Duration, Option<Instant>)>| -> io::Result<()> {
            let mut client = Client::connect(address, LIMIT)?;
            loop {
                thread::sleep(EVERY);
                client.send("GET", "/healthz", &[], b"")?;
                client.receive()?;
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                let last = notes.1.map_or(Duration::ZERO, |since| since.elapsed());
                *notes = (notes.0.max(last), Some(Instant::now()));
            }
        };
        thread::spawn(move || {
            let _ = measure(&notes);
            notes.lock().unwrap_or_else(PoisonError::into_inner).1 = None;
        });
        Self { noted }
    }

    /// The longest time so far, with the one that is not over.
    pub fn longest(&self) -> Duration {
        let (longest, since) = *self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        longest.max(since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}
