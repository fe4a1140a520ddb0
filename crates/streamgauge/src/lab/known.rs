//! What is known of a trial before and while its server runs: the values for the templates of its
//! load, and how long the trial takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::arguments::{Values, fill, fill_all};
use super::peer::Job;
use super::plan::{SMALL, Trial};
use super::record::Parameters;
use super::scenario::Scenario;

/// The values that templates of a load can use.
#[derive(Clone)]
pub(super) struct Known<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) urls: Vec<String>,
    pub(super) media: &'a BTreeMap<String, PathBuf>,
}

impl Values for Known<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let url = || self.urls.first().map(String::as_str);
        let (address, uri) = url().map(parts).unwrap_or_default();
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
        match name {
            "url" => url().map(str::to_owned),
            "urls" => Some(self.urls.join(" ")),
            "host" => Some(host.to_owned()),
            "port" => Some(port.to_owned()),
            "uri" => Some(uri.to_owned()),
            _ => match name.strip_prefix("media.") {
                Some(name) => Some(self.media.get(name)?.to_string_lossy().into_owned()),
                None => self.parameters.value(name),
            },
        }
    }

    fn values(&self, name: &str) -> Option<Vec<String>> {
        (name == "urls").then(|| self.urls.clone())
    }
}

/// Splits a URL into address and path.
fn parts(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

/// The files or the stream that a trial asks the server for.
pub(super) fn wanted(trial: &Trial<'_>) -> anyhow::Result<Vec<String>> {
    let asked = trial.load.path.iter().chain(&trial.load.stream);
    Ok(asked.map(|text| fill(text, &trial.case.values)).collect::<Result<_, _>>()?)
}

/// The job that a trial gives to the server.
pub(super) fn job(trial: &Trial<'_>) -> anyhow::Result<Job> {
    Ok(fill(&trial.load.job, &trial.case.values)?.parse()?)
}

/// Computes how long a trial takes. Fails if a template cannot be filled in.
pub(super) fn expected(
    trial: &Trial<'_>,
    scenario: &Scenario,
    scale: f64,
) -> anyhow::Result<Duration> {
    let url = || "http://127.0.0.1:20000/x".to_owned();
    let media = scenario.media.keys().map(|name| (name.clone(), PathBuf::new())).collect();
    let urls = wanted(trial)?.iter().map(|_| url()).collect();
    let known = Known { parameters: &trial.case.values, urls, media: &media };
    let load = trial.load;
    let arguments = fill_all(&load.arguments, &known).context("arguments")?;
    if let Some(background) = &load.background {
        fill_all(&background.path, &known).context("background.path")?;
        fill_all(&background.arguments, &known).context("background.arguments")?;
    }
    if let Some(publish) = &load.publish {
        let file = fill(&publish.file, &known).context("publish.file")?;
        ensure!(scenario.media.contains_key(&file), "publish.file: there is no media {file:?}");
    }
    Ok(around(load.settle, scale) + load.with.expected(&arguments) + around(load.rest, scale))
}

/// Scales a time before or after a load. It decides what is measured (how old a live stream is, and
/// what a server still does), so only small scales make it shorter. It is never below a fifth of a
/// second: the server must have time to finish what it did before.
pub(super) fn around(time: Duration, scale: f64) -> Duration {
    let factor = (scale / SMALL).min(1.0);
    let shorter = Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(time);
    shorter.max(time.min(Duration::from_millis(200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_tenth_of_the_time_waits_as_long_as_a_whole_one() {
        let settle = Duration::from_secs(40);
        for (scale, seconds) in
            [(1.0, 40.0), (0.25, 40.0), (0.1, 40.0), (0.05, 20.0), (0.0001, 0.2)]
        {
            assert_eq!(around(settle, scale), Duration::from_secs_f64(seconds), "{scale}");
        }
        assert_eq!(around(Duration::ZERO, 0.001), Duration::ZERO);
    }
}
