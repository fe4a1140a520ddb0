//! A wrong configuration is refused at start. A right one is printed in full.

use std::path::Path;
use std::process::Command;

use headwater::config::Config;
use testkit::Program;

use crate::support::{BINARY, LIMIT};

#[test]
fn unknown_key_or_bad_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    for (text, line, key) in [
        ("[live]\n\nwindwo = \"30s\"\n", 3, "live.windwo"),
        ("[http]\nlisten = \"0.0.0.0:8080\"\nfast = true\n", 3, "http.fast"),
        ("[speed]\nfast = true\n", 1, "speed"),
        ("workers = \"many\"\n", 1, "workers"),
        ("[http]\nlisten = \"nowhere\"\n", 2, "http.listen"),
        ("[live]\npart_target = \"200 apples\"\n", 2, "live.part_target"),
        ("[live]\ntarget_duration = \"1500ms\"\n", 2, "live.target_duration"),
        ("[live]\nwindow = \"1s\"\n", 2, "live.window"),
        ("[vod]\nroot = 7\n", 2, "vod.root"),
    ] {
        std::fs::write(&path, text).unwrap();
        for command in ["serve", "check"] {
            let program =
                Program::spawn(Command::new(BINARY).arg(command).arg("--config").arg(&path));
            let finished = program.wait(LIMIT);
            assert_eq!(finished.status.code(), Some(2), "{text}: {finished:?}");
            assert!(finished.stdout.is_empty(), "{text}: {finished:?}");
            let told = format!("{}:{line}: {key}: ", path.display());
            assert!(finished.stderr.contains(&told), "{text}: {told}\n{}", finished.stderr);
            assert_eq!(finished.stderr.lines().count(), 1, "{text}: {}", finished.stderr);
        }
    }
    let missing = folder.path().join("missing.toml");
    let program = Program::spawn(Command::new(BINARY).arg("serve").arg("--config").arg(&missing));
    let finished = program.wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(finished.stderr.contains("missing.toml"), "{finished:?}");
}

#[test]
fn check_prints_what_is_in_effect_and_reads_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.toml");
    std::fs::write(&path, "workers = 3\n[live]\nwindow = \"20s\"\n").unwrap();
    let check = |path: &Path| {
        let mut command = Command::new(BINARY);
        String::from_utf8(Program::output(command.arg("check").arg("--config").arg(path), LIMIT))
            .unwrap()
    };
    let printed = check(&path);
    let read = Config::parse(&printed, Path::new("printed.toml")).unwrap();
    assert_eq!(read, Config::load(Some(&path)).unwrap());
    assert_eq!(read.workers, 3);
    assert!(printed.contains("window = \"20s\""), "{printed}");
    // The printed configuration prints the same text again.
    let again = folder.path().join("again.toml");
    std::fs::write(&again, &printed).unwrap();
    assert_eq!(check(&again), printed);
}

/// A disk that is full, and a reader that has gone.
#[test]
fn output_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "a secret that has at least 32 bytes").unwrap();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, BINARY]).current_dir(folder.path());
        Program::spawn(&mut command).wait(LIMIT)
    };
    for command in ["check", "sign live/x --key key", "hash-password"] {
        let full = run(&format!("echo password | \"$0\" {command} >/dev/full"));
        assert_eq!(full.status.code(), Some(2), "{command}: {full:?}");
        assert!(full.stderr.contains("standard output: "), "{command}: {}", full.stderr);
        assert_eq!(full.stderr.lines().count(), 1, "{command}: {}", full.stderr);
        // The shell is the pipe's only reader, and stops to be one.
        let pipe = "rm -f gone; mkfifo gone; exec 3<>gone 4>gone 3<&-";
        let gone = run(&format!("{pipe}; echo password | \"$0\" {command} >&4"));
        assert_eq!((gone.status.code(), &*gone.stderr), (Some(0), ""), "{command}");
    }
}
