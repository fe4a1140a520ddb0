//! AMF0: values that were read can be written and read again, and stay the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::rtmp::amf0;

fuzz_target!(|bytes: &[u8]| {
    let Ok(values) = amf0::decode(bytes) else { return };
    let written = amf0::encode_all(&values);
    // Latin-1 text grows when it is written as UTF-8. So a name may no longer fit, or a count may
    // be too large.
    if let Ok(again) = amf0::decode(&written) {
        assert_eq!(amf0::encode_all(&again), written);
    } else {
        assert!(written.len() > bytes.len(), "written but not readable");
    }
});
