//! Which header extensions of RTP a publisher's packets may have (RFC 8285).
//!
//! str0m has one list of them for all media of a session. It begins with a list of its own, and changes it by each
//! `a=extmap` of an offer. What an offer does not name stays as it was. Where media descriptions contradict each
//! other, the list is not what any of them says. So str0m would read numbers that the peer never meant as such, and
//! nobody outside of str0m would know where it reads them. Here the list is made of the offer, and the offer says
//! nothing else.

use str0m::rtp::{Extension, ExtensionMap};

/// The identifiers that str0m knows. 15 has another meaning in the one-byte form.
const IDENTIFIERS: [u8; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16];

/// Leaves in an offer those header extensions that are taken. Of two that contradict each other, the first is taken.
/// Returns the offer, and the list for str0m.
pub(super) fn limit(offer: &str) -> (String, Option<ExtensionMap>) {
    let has = |begin: &str, end: &str| {
        offer.lines().any(|line| line.starts_with(begin) && line.trim_end().ends_with(end))
    };
    let (has_layers, has_feedback) = (has("a=simulcast:", ""), has("a=rtcp-fb:", " transport-cc"));
    let is_taken = |extension: &Extension| match extension {
        // str0m would keep something for each name of a layer that comes.
        Extension::RtpStreamId | Extension::RepairedRtpStreamId => has_layers,
        Extension::TransportSequenceNumber => has_feedback,
        _ => true,
    };
    let (known, mut map) = (ExtensionMap::standard(), ExtensionMap::empty());
    let mut out = String::with_capacity(offer.len());
    for line in offer.split_inclusive('\n') {
        if let Some(value) = line.strip_prefix("a=extmap:") {
            let named = read(value).and_then(|(id, uri)| {
                let (_, extension) = known.iter().find(|(_, it)| it.as_uri() == uri)?;
                is_taken(extension).then_some((id, extension))
            });
            let Some((id, extension)) = named else { continue };
            match (map.lookup(id), map.id_of(extension.clone())) {
                (None, None) => map.set(id, extension.clone()),
                (Some(other), _) if other == extension => {}
                _ => continue,
            }
        }
        out.push_str(line);
    }
    (out, Some(map))
}

/// The identifier and the name of a header extension (RFC 8285 8).
fn read(value: &str) -> Option<(u8, &str)> {
    let mut words = value.split_ascii_whitespace();
    let (id, uri) = (words.next()?, words.next()?);
    let id = id.split('/').next()?.parse().ok()?;
    IDENTIFIERS.contains(&id).then_some((id, uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str =
        "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    const MID: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
    const RID: &str = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id";

    #[test]
    fn the_list_is_what_the_offer_says() {
        let of = |lines: &[&str]| {
            let offer = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
            let (offer, map) = limit(&offer);
            let map = map.unwrap();
            let ids: Vec<_> = map.iter().map(|(id, it)| (id, it.as_uri().to_owned())).collect();
            (offer.lines().map(str::to_owned).collect::<Vec<_>>(), ids)
        };
        let feedback = "a=rtcp-fb:96 transport-cc";
        let line = |id: &str, uri: &str| format!("a=extmap:{id} {uri}");
        let (three, mid) = (line("3", NUMBERS), line("4/sendonly", MID));
        let ids = |list: &[(u8, &str)]| {
            list.iter().map(|(id, uri)| (*id, (*uri).to_owned())).collect::<Vec<_>>()
        };
        let all = [feedback, "m=video", &three, &mid, "m=audio", &three];
        assert_eq!(of(&all), (all.map(str::to_owned).to_vec(), ids(&[(3, NUMBERS), (4, MID)])));
        assert_eq!(of(&["m=video"]).1, [], "str0m's own list");
        assert_eq!(of(&[&three, &mid]).1, ids(&[(4, MID)]), "no feedback is wanted");
        // Another extension has the identifier, or the extension has another identifier.
        let taken = ([feedback, &three].map(str::to_owned).to_vec(), ids(&[(3, NUMBERS)]));
        for other in [line("3", MID), line("5", NUMBERS), line("3", "urn:other")] {
            assert_eq!(of(&[feedback, &three, &other]), taken, "{other}");
        }
        for bad in
            ["a=extmap:3", "a=extmap:x y", &line("0", MID), &line("15", MID), &line("17", MID)]
        {
            assert_eq!(of(&[feedback, bad, &three]), taken, "{bad}");
        }
        let rid = line("10", RID);
        assert_eq!(of(&[&rid]).1, []);
        let layers = "a=simulcast:send h;l";
        assert_eq!(
            of(&[&rid, layers]),
            ([&rid, layers].map(str::to_owned).to_vec(), ids(&[(10, RID)]))
        );
    }
}
