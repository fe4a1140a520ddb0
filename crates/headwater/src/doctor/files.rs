//! The files of `[vod]`: the folder, or the store and the folder of its cache.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use tokio::time::timeout;

use super::{Check, PATIENCE, in_time};
use crate::config::Config;

const ROOT: &str = "vod.root";
const CACHE: &str = "vod.store.cache";

pub(super) async fn check(config: &Config) -> Vec<Check> {
    let Some(settings) = config.vod.store() else {
        let folder = config.vod.folder().to_owned();
        let read = {
            let folder = folder.clone();
            move || std::fs::read_dir(folder).map(drop)
        };
        return vec![judge_folder(&folder, in_time(read).await)];
    };
    // The store has its own limit of time, but the look-up of its name has none.
    let limit = settings.timeout.saturating_add(PATIENCE);
    let answer = match timeout(limit, store::probe(&settings)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
    };
    let cache = settings.cache.clone();
    let room = in_time(move || room(&cache)).await;
    vec![
        judge_store(&settings.url, answer),
        judge_cache(&settings.cache, settings.cache_size, room),
    ]
}

fn judge_folder(folder: &Path, read: Option<io::Result<()>>) -> Check {
    let path = folder.display();
    let why = "Nothing below /vod/ can be served";
    match read {
        Some(Ok(())) => Check::ok(ROOT, format!("{path} can be read")),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            let found = format!("there is no folder {path}");
            Check::warning(ROOT, found, why, format!("mkdir -p {path}, or another vod.root"))
        }
        Some(Err(error)) => {
            let remedy = "a folder that this user may read, as vod.root";
            Check::problem(ROOT, format!("{path}: {error}"), why, remedy)
        }
        None => {
            let found = format!("{path} does not answer within {PATIENCE:?}");
            let remedy = "a file system that answers: look at its server or its disk (`dmesg`)";
            Check::problem(ROOT, found, "Viewers of files wait as long", remedy)
        }
    }
}

fn judge_store(url: &str, answer: Result<(), String>) -> Check {
    match answer {
        Ok(()) => Check::ok(ROOT, format!("{url} answers")),
        Err(error) => {
            let remedy = "credentials in the environment, vod.store.endpoint and vod.store.allow_http (docs/store.md)";
            Check::problem(ROOT, format!("{url}: {error}"), "Viewers of files get a 503", remedy)
        }
    }
}

/// The nearest folder that there is, whether it can be written, and the bytes that are free there.
fn room(cache: &Path) -> io::Result<(PathBuf, u64)> {
    let absolute = std::path::absolute(cache)?;
    let there = absolute.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    access(there, Access::WRITE_OK | Access::EXEC_OK)?;
    let room = statvfs(there)?;
    Ok((there.to_owned(), room.f_bavail.saturating_mul(room.f_frsize)))
}

fn judge_cache(cache: &Path, size: u64, room: Option<io::Result<(PathBuf, u64)>>) -> Check {
    let path = cache.display();
    match room {
        Some(Ok((_, free))) if free >= size => {
            Check::ok(CACHE, format!("{path} has room for vod.store.cache_size"))
        }
        Some(Ok((there, free))) => {
            let (there, mib) = (there.display(), |bytes: u64| bytes >> 20);
            let found = format!(
                "{there} has {} MiB free, and vod.store.cache_size is {} MiB",
                mib(free),
                mib(size)
            );
            // What the cache already has on that disk counts as used.
            let why = "When the disk is full, nothing more is kept; what a cache has there already may be part of it";
            Check::warning(CACHE, found, why, "a lower vod.store.cache_size, or another folder")
        }
        Some(Err(error)) => {
            let remedy = "a folder that this user may write, as vod.store.cache";
            Check::problem(CACHE, format!("{path}: {error}"), "The server does not start", remedy)
        }
        None => {
            let found = format!("{path} does not answer within {PATIENCE:?}");
            Check::problem(CACHE, found, "Viewers of files wait as long", "a local disk")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[tokio::test]
    async fn a_folder_must_be_there_and_readable() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        for (path, level) in [("", Level::Ok), ("none", Level::Warning), ("file", Level::Problem)] {
            std::fs::write(folder.path().join("file"), "").unwrap();
            config.vod.root = folder.path().join(path);
            let checks = check(&config).await;
            assert_eq!((checks.len(), checks[0].level), (1, level), "{path}");
        }
        assert_eq!(judge_folder(folder.path(), None).level, Level::Problem);
    }

    #[test]
    fn a_store_that_does_not_answer_and_a_cache_without_room_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("a/b");
        let found = room(&cache).unwrap();
        assert_eq!(found.0, folder.path());
        assert_eq!(judge_cache(&cache, 1, Some(Ok(found))).level, Level::Ok);
        assert!(!folder.path().join("a").exists(), "nothing is changed");
        let tight = Some(Ok((PathBuf::from("/"), 1)));
        assert_eq!(judge_cache(&cache, 2, tight).level, Level::Warning);
        assert_eq!(judge_cache(&cache, 2, None).level, Level::Problem);
        assert_eq!(judge_store("s3://films", Err("away".to_owned())).level, Level::Problem);
        assert_eq!(judge_store("s3://films", Ok(())).level, Level::Ok);
    }
}
