//! Compound RTCP packets (RFC 3550 6.1).

/// Set in the first byte of an RTCP packet that ends with padding, whose last byte counts its bytes.
pub(crate) const PADDING: u8 = 0x20;

/// Bytes of the part that all RTCP packets begin with.
const HEADER: usize = 4;

/// Returns the RTCP packets of a compound one, each without its padding. What is cut off at the end, and what has
/// more padding than bytes, is left out.
pub fn packets(mut compound: &[u8]) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let &[_, _, high, low, ..] = compound else { return None };
        let length = HEADER * (usize::from(u16::from_be_bytes([high, low])) + 1);
        let (packet, rest) = compound.split_at_checked(length)?;
        compound = rest;
        Some(packet)
    };
    std::iter::from_fn(next).filter_map(|packet| {
        let (&first, &last) = (packet.first()?, packet.last()?);
        let padding = if first & PADDING == 0 { 0 } else { usize::from(last) };
        let length = packet.len().checked_sub(padding).filter(|length| *length >= HEADER)?;
        packet.get(..length)
    })
}

#[cfg(test)]
mod tests {
    use super::packets;

    #[test]
    fn packets_come_without_padding_and_broken_ones_not_at_all() {
        let plain = [0x80, 201, 0, 1, 1, 2, 3, 4];
        let padded = [0xa0, 202, 0, 1, 0, 0, 0, 4];
        let overlong = [0xa0, 203, 0, 1, 0, 0, 0, 9];
        let compound = [&plain[..], &padded, &overlong, &plain, &plain[..6]].concat();
        let found: Vec<_> = packets(&compound).collect();
        assert_eq!(found, [&plain[..], &padded[..4], &plain]);
        assert_eq!(packets(&[]).count(), 0);
    }
}
