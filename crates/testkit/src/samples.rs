//! Configurations for tests that need a track, but no media.

/// An AVCDecoderConfigurationRecord (ISO/IEC 14496-15 5.3.3.1) as x264 writes it: 1280×720,
/// Baseline. `level` is ten times the level.
pub fn avc_record(level: u8) -> Vec<u8> {
    let sps = [
        0x67, 0x42, 0xc0, level, 0xda, 0x01, 0x40, 0x16, 0xec, 0x04, 0x40, 0x00, 0x00, 0x03, 0x00,
        0x40, 0x00, 0x00, 0x0f, 0x23, 0xc6, 0x0c, 0xa8,
    ];
    let pps = [0x68, 0xce, 0x0f, 0x2c, 0x80];
    let mut record = vec![1, 0x42, 0xc0, level, 0xff, 0xe1, 0, 23];
    record.extend(sps);
    record.extend([1, 0, 5]);
    record.extend(pps);
    record
}
