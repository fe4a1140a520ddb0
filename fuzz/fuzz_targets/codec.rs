//! Configuration records and access units from anyone, read as those of every codec.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use media::codec::{aac, av1, avc, hevc, nal, opus};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(config) = avc::Config::parse(bytes.clone()) {
        assert!(config.width > 0 && config.height > 0);
        let _ = config.is_random_access(data);
    }
    if let Ok(config) = hevc::Config::parse(bytes.clone()) {
        assert!(config.width > 0 && config.height > 0);
        assert!(config.rfc6381().starts_with("hvc1."));
        let _ = config.is_random_access(data);
    }
    if let Ok(config) = av1::Config::parse(bytes.clone()) {
        assert!(config.rfc6381().starts_with("av01."));
    }
    if let Ok(Some(config)) = av1::Config::from_temporal_unit(data) {
        assert!(config.width > 0);
    }
    let _ = (av1::is_keyframe(data), av1::check(data), av1::temporal_delimiter(data));
    if let Ok(config) = aac::Config::parse(bytes.clone()) {
        assert!(config.sample_rate > 0 && config.channels > 0 && config.frame_length > 0);
    }
    let _ = opus::Config::parse(bytes);
    if let Ok(config) = opus::Config::from_opus_head(data) {
        assert_eq!(opus::Config::from_opus_head(&config.opus_head()), Ok(config));
    }
    let _ = opus::packet_duration(data);
    for size in [1, 2, 4] {
        let sum: Option<usize> = nal::units(data, size).map(|unit| Some(unit.ok()?.len())).sum();
        assert!(sum.is_none_or(|sum| sum <= data.len()));
    }
});
