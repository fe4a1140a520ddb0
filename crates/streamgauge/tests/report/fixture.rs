//! Run folders in the form of `run`, with invented figures.

use std::fs;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde_json::json;
use streamgauge::lab::record::{
    Command, FORM, Machine, Parameters, PeerVersion, Run, Trial, Value,
};

/// A title that would be a script if it were not escaped.
pub const HOSTILE: &str = "<script>alert(1)</script> & \"quoted\" | `code` ]]>";

/// The folder of a run.
pub struct Folder {
    pub path: PathBuf,
}

pub fn number(value: f64) -> Value {
    Value::Number(value)
}

pub fn parameters(of: &[(&str, f64)]) -> Parameters {
    of.iter().map(|(name, value)| ((*name).to_owned(), number(*value))).collect()
}

/// Makes a successful trial.
pub fn trial(
    load: &str,
    of: &[(&str, f64)],
    peer: &str,
    repetition: u32,
    metrics: &[(&str, f64)],
) -> Trial {
    Trial {
        form: FORM,
        load: load.to_owned(),
        parameters: parameters(of),
        scaled: Parameters::new(),
        peer: peer.to_owned(),
        repetition,
        began: "2026-11-22T01:02:03Z".to_owned(),
        elapsed: 12.5,
        commands: vec![
            Command {
                role: "server".to_owned(),
                arguments: ["taskset", "-c", "0", peer, "-c", "a file.conf"]
                    .map(str::to_owned)
                    .to_vec(),
                status: Some(0),
            },
            Command {
                role: "load".to_owned(),
                arguments: [
                    "streamgauge",
                    "viewers",
                    "rtmp://127.0.0.1:1935/vod/film.mp4",
                    "--json",
                ]
                .map(str::to_owned)
                .to_vec(),
                status: Some(0),
            },
        ],
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        saturated: false,
        warnings: vec![],
        failed: None,
    }
}

impl Folder {
    pub fn new(path: &Path, scenario: &str, scale: f64, peers: &[(&str, &str, &str)]) -> Self {
        fs::create_dir_all(path.join("trials")).unwrap();
        fs::write(path.join("scenario.toml"), scenario).unwrap();
        let peer = |(name, title, version): &(&str, &str, &str)| {
            let (title, version) = ((*title).to_owned(), (*version).to_owned());
            ((*name).to_owned(), PeerVersion { title, version, ..PeerVersion::default() })
        };
        let mut run: Run = serde_json::from_value(json!({
            "form": FORM, "scenario": "study-x", "title": "X", "scale": scale,
            "began": "2026-11-22T01:00:00Z", "ended": "2026-11-22T02:30:00Z",
            "command": ["streamgauge", "run", "study-x", "--scale", scale.to_string()],
            "machine": Machine {
                processor: "A processor of eight cores at 3 GHz".to_owned(),
                processors: 8,
                memory: 16 << 30,
                kernel: "Linux 6.1.0".to_owned(),
                system: "Debian GNU/Linux 12".to_owned(),
                tcp: "cubic, fq_codel".to_owned(),
                server_cpus: "0-3".to_owned(),
                load_cpus: "4-7".to_owned(),
            },
            "peers": {}, "absent": {}, "warnings": [], "media": {},
        }))
        .unwrap();
        run.peers = peers.iter().map(peer).collect();
        let folder = Self { path: path.to_owned() };
        folder.run(&run);
        folder
    }

    pub fn run(&self, run: &Run) {
        fs::write(self.path.join("run.json"), serde_json::to_string_pretty(run).unwrap()).unwrap();
    }

    pub fn read_run(&self) -> Run {
        serde_json::from_slice(&fs::read(self.path.join("run.json")).unwrap()).unwrap()
    }

    /// Writes a trial; returns its folder.
    pub fn keep(&self, trial: &Trial) -> PathBuf {
        let case = trial.parameters.iter().map(|(name, value)| match value {
            Value::Number(value) if *value > 1e9 => format!("{name}={value:e}"),
            value => format!("{name}={value}"),
        });
        let case = case.collect::<Vec<_>>().join(",");
        let case = if case.is_empty() { "all".to_owned() } else { case };
        let folder = self
            .path
            .join("trials")
            .join(&trial.load)
            .join(case)
            .join(&trial.peer)
            .join(trial.repetition.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("trial.json"), serde_json::to_string(trial).unwrap()).unwrap();
        folder
    }
}

/// Writes a histogram of times in milliseconds, in the unit of `http` (nanoseconds) or of `viewers`
/// (microseconds).
pub fn histogram(folder: &Path, name: &str, millis: impl IntoIterator<Item = f64>, nanos: bool) {
    let per_milli = if nanos { 1e6 } else { 1e3 };
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for value in millis {
        histogram.record((value * per_milli) as u64).unwrap();
    }
    let mut file = Vec::new();
    let mut serializer = V2Serializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(if nanos { "[Unit: ns]" } else { "[Unit: us]" });
    builder.with_max_value_divisor(per_milli);
    let mut log = builder.begin_log_with(&mut file, &mut serializer).unwrap();
    let zero = std::time::Duration::ZERO;
    log.write_histogram(&histogram, zero, zero, None).unwrap();
    fs::write(folder.join(format!("{name}.hlog")), file).unwrap();
}

/// Writes the file of the meter, a line for each second: CPU in per cent, and bits sent in that
/// second.
pub fn meter(folder: &Path, seconds: u32, mut of: impl FnMut(f64) -> (f64, f64)) {
    let (mut text, mut up, mut used) = (String::new(), 0.0, 0.0);
    for second in 1..=seconds {
        let (cpu, bits) = of(f64::from(second));
        up += bits / 8.0;
        used += cpu / 100.0;
        let line = json!({
            "at": f64::from(second) + 0.001, "interval": 1.0,
            "system": {
                "seconds": second, "load": 0.5, "memory": 1e9 + 3e6 * f64::from(second),
                "cpu": cpu, "up": up, "down": up,
            },
            "processes": [{
                "pid": 42, "name": "server", "cpu_user": used, "cpu_system": 0.0,
                "resident": 5e7, "proportional": 4e7, "descriptors": 10, "threads": 2,
                "switches_voluntary": 1, "switches_involuntary": 1,
            }],
            "kernel": {}, "sockets": {},
        });
        text += &(line.to_string() + "\n");
    }
    fs::write(folder.join("meter.jsonl"), text).unwrap();
}

/// Numbers from 0 to 1 without a pattern, the same in every run.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
