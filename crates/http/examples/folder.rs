//! Serves a folder: `cargo run -p headwater-http --example folder -- FOLDER [ADDRESS]`.
//!
//! Files go from the page cache to the socket, with ranges and validators. A request that is not
//! for media, here anything below `/about`, goes to the control plane, which is axum.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::{
    Config, FileVersion, Handler, OpenFile, Piece, Representation, Request, Response, Server,
    Validators,
};

#[derive(Clone)]
struct Folder(Arc<Path>);

impl Handler for Folder {
    fn accepts(&self, request: &Request) -> bool {
        !request.path().starts_with("/about")
    }

    async fn handle(&self, request: Request) -> Response {
        // Opening a file may wait for a disk, so it must not happen on the event loop.
        let path = self.0.join(request.path().trim_start_matches('/'));
        match tokio::task::spawn_blocking(move || open(&path)).await {
            Ok(Ok(file)) => respond(&request, file).unwrap_or_else(|error| refuse(&error)),
            Ok(Err(error)) => refuse(&error),
            Err(_) => Response::text(500, "opening the file failed"),
        }
    }
}

/// Opens a file. A path with `..` is refused; symbolic links are followed.
fn open(path: &Path) -> io::Result<File> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(path)
}

fn respond(request: &Request, file: File) -> io::Result<Response> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let version = FileVersion::of(&metadata);
    let file = Arc::new(OpenFile::from(file));
    let representation = Representation {
        length: metadata.len(),
        content_type: "application/octet-stream",
        cache_control: "no-cache",
        validators: Validators { etag: None, modified: metadata.modified().ok() },
        fields: None,
    };
    Ok(representation.respond(request, |range| {
        vec![Piece::File { file: Arc::clone(&file), range, version: Some(version) }]
    }))
}

fn refuse(error: &io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Response::text(404, "there is no such file")
        }
        _ => Response::text(503, "the file cannot be opened now"),
    }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().unwrap_or_else(|| ".".to_owned());
    let address = words.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let server = Server::bind(address.parse().map_err(invalid)?, Config::default())?;
    let mut out = io::stdout();
    writeln!(out, "serving {folder} at http://{}/", server.address())?;
    let folder = Folder(PathBuf::from(folder).into());
    let control = Router::new().route("/about", get(async || "a folder, served\n"));
    let stop = async {
        // Without a signal handler there is no signal to wait for.
        let _ = tokio::signal::ctrl_c().await;
    };
    server.run(move |_| folder.clone(), control, stop).await
}
