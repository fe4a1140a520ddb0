//! Boxes of MP4 (ISO/IEC 14496-12) written by hand, for files that no program writes.

/// A box of this type with this payload.
pub fn boxed(kind: &[u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut data = (payload.len() as u32 + 8).to_be_bytes().to_vec();
    data.extend_from_slice(kind);
    data.extend_from_slice(payload);
    data
}

/// A full box: version, flags, and then 32-bit words.
pub fn full(kind: &[u8; 4], version: u8, flags: u32, words: &[u32]) -> Vec<u8> {
    let mut payload = (u32::from(version) << 24 | flags).to_be_bytes().to_vec();
    payload.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    boxed(kind, &payload)
}

/// Concatenates parts.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// Sample entries of an unknown codec.
pub fn stsd(entries: u32) -> Vec<u8> {
    let mut payload = vec![0; 4];
    payload.extend(entries.to_be_bytes());
    for entry in 0..entries {
        payload.extend(boxed(&[b't', b's', b't', b'0' + entry as u8], &[0; 78]));
    }
    boxed(b"stsd", &payload)
}

/// `moov` with one video track (ID 1, timescale 1000, movie timescale 100), with these sample
/// tables, this edit list, and further boxes behind the track.
pub fn moov(tables: &[Vec<u8>], elst: Option<Vec<u8>>, after: &[Vec<u8>]) -> Vec<u8> {
    let mvhd = full(b"mvhd", 0, 0, &[0, 0, 100, 0]);
    let tkhd = full(b"tkhd", 0, 7, &[0, 0, 1]);
    let mdhd = full(b"mdhd", 0, 0, &[0, 0, 1000, 0, 0x55c4 << 16]);
    let hdlr = full(b"hdlr", 0, 0, &[0, u32::from_be_bytes(*b"vide")]);
    let minf = boxed(b"minf", &boxed(b"stbl", &join(tables)));
    let mdia = boxed(b"mdia", &join(&[mdhd, hdlr, minf]));
    let edts = elst.map(|elst| boxed(b"edts", &elst)).unwrap_or_default();
    let trak = boxed(b"trak", &join(&[tkhd, edts, mdia]));
    let mut payload = join(&[mvhd, trak]);
    payload.extend(join(after));
    boxed(b"moov", &payload)
}
