//! Which layers of simulcast are taken from an offer (RFC 8853).

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use str0m::format::Codec;

use super::codecs;

/// The most layers that are taken. Browsers send three, OBS Studio four.
pub(super) const MOST_LAYERS: usize = 4;

/// The longest rid. str0m cuts off what is longer.
const LONGEST_RID: usize = 8;

/// Leaves in an offer only the layers that are taken, at most `most` of each media description. Its answer
/// then accepts just these.
///
/// An offer names its layers in order of preference (RFC 8853 5.2), so the first are taken. Of
/// alternatives (`a,b`) the first is taken. A layer that is paused (`~a`) stays so in the answer: its
/// sender begins it when it likes. What no `a=rid` line describes is left out, and so is a layer that may
/// only be something else than the codec that is taken.
///
/// # Errors
/// A layer's name is nothing to name a rendition by, or names two layers.
pub(super) fn limit(offer: &str, taken: Option<Codec>, most: usize) -> Result<String, String> {
    let mut out = String::with_capacity(offer.len());
    let mut rest = offer;
    while !rest.is_empty() {
        let end = rest.find("\nm=").map_or(rest.len(), |at| at + 1);
        let (media, after) = rest.split_at(end);
        // Neither audio nor what comes before the first media description has layers.
        let most = if media.starts_with("m=video ") { most } else { 0 };
        limit_media(media, taken, most, &mut out)?;
        rest = after;
    }
    Ok(out)
}

fn limit_media(
    media: &str,
    taken: Option<Codec>,
    most: usize,
    out: &mut String,
) -> Result<(), String> {
    let layers = layers(media, taken, most)?;
    let mut is_told = layers.is_empty();
    for line in media.split_inclusive('\n') {
        if let Some(rid) = line.strip_prefix("a=rid:") {
            let is_taken = layers.iter().any(|layer| Some(name(layer)) == rid.split(' ').next());
            if !is_taken || described(line).is_none() {
                continue;
            }
        }
        if !line.starts_with("a=simulcast:") {
            out.push_str(line);
        } else if !std::mem::replace(&mut is_told, true) {
            let _ = write!(out, "a=simulcast:send {}\r\n", layers.join(";"));
        }
    }
    Ok(())
}

/// The layers of a media description that are taken, each with its mark if it is paused.
fn layers(media: &str, taken: Option<Codec>, most: usize) -> Result<Vec<&str>, String> {
    let Some(list) = media.lines().find_map(|line| line.strip_prefix("a=simulcast:")) else {
        return Ok(Vec::new());
    };
    // An offer may have thousands of each, so each line is read once.
    let mut usable = HashSet::new();
    let mut known: HashMap<&str, Vec<Option<&str>>> = HashMap::new();
    for line in media.lines() {
        if let Some((rid, payloads)) = described(line) {
            known.entry(rid).or_default().push(payloads);
        }
        let payload = codecs::codec(line).filter(|(_, codec)| Some(*codec) == taken);
        usable.extend(payload.map(|(payload, _)| payload));
    }
    let mut words = list.split_ascii_whitespace();
    let sent = words.by_ref().find(|word| *word == "send").and_then(|_| words.next());
    let mut layers: Vec<&str> = Vec::new();
    for alternatives in sent.unwrap_or_default().split(';') {
        if layers.len() >= most {
            break;
        }
        let first = alternatives.split(',').next().unwrap_or_default();
        let rid = name(first);
        let Some([payloads, others @ ..]) = known.get(rid).map(Vec::as_slice) else { continue };
        if !payloads.is_none_or(|payloads| payloads.split(',').any(|it| usable.contains(it))) {
            continue;
        }
        // RFC 8852 allows no other characters.
        if rid.len() > LONGEST_RID || !rid.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let rid: String = rid.chars().take(2 * LONGEST_RID).collect();
            return Err(format!("a=rid:{rid} is not of 1 to {LONGEST_RID} letters and digits"));
        }
        if !others.is_empty() || layers.iter().any(|layer| name(layer) == rid) {
            return Err(format!("a=rid:{rid} names two layers"));
        }
        layers.push(first);
    }
    Ok(layers)
}

/// The name in an item of `a=simulcast`.
fn name(item: &str) -> &str {
    item.strip_prefix('~').unwrap_or(item)
}

/// The name of a layer that a line describes, and its payload types if they are not all (RFC 8851 5).
fn described(line: &str) -> Option<(&str, Option<&str>)> {
    let (rid, rest) = line.strip_prefix("a=rid:")?.trim_end().split_once(' ')?;
    let rest = rest.strip_prefix("send").filter(|rest| rest.is_empty() || rest.starts_with(' '))?;
    let payloads = rest.trim_start().split(';').find_map(|each| each.strip_prefix("pt="));
    Some((rid, payloads))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(offer: &str, most: usize) -> Result<String, String> {
        super::limit(offer, Some(Codec::H264), most)
    }

    /// A media description with these lines.
    fn offer(lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        format!(
            "v=0\r\nm=audio 9 x 111\r\na=mid:0\r\nm=video 9 x 96 97\r\na=rtpmap:96 h264/90000\r\n\
             a=rtpmap:97 VP8/90000\r\n{lines}a=mid:1\r\n"
        )
    }

    #[test]
    fn layers_are_taken_in_order_of_preference() {
        let rids = ["a=rid:a send", "a=rid:b send max-width=640", "a=rid:c send pt=96;max-br=9"];
        let with = |simulcast: &str| {
            let lines = [&rids[..], &[simulcast]].concat();
            limit(&offer(&lines), 3).unwrap()
        };
        for (offered, taken, left) in [
            ("send a;b;c", "send a;b;c", 3),
            ("send c;a", "send c;a", 2),
            ("recv a;b send c,b;~a", "send c;~a", 2),
            ("send a;x;c recv b", "send a;c", 2),
        ] {
            let offer = with(&format!("a=simulcast:{offered}"));
            assert!(offer.contains(&format!("a=simulcast:{taken}\r\n")), "{offered}: {offer}");
            assert_eq!(offer.matches("a=rid:").count(), left, "{offered}: {offer}");
        }
        for none in ["a=simulcast:recv a", "a=simulcast:send", "a=simulcast:", "a=x"] {
            assert!(!with(none).contains("a=rid:"), "{none}");
        }
    }

    #[test]
    fn there_is_a_limit_and_other_codecs_are_left_out() {
        let lines = ["a=rid:a send pt=97", "a=rid:b send pt=97,96", "a=rid:c send", "a=rid:d send"];
        let lines = [&lines[..], &["a=rid:e recv", "a=simulcast:send a;b;c;d;e"]].concat();
        let expected = ["a=rid:b send pt=97,96", "a=rid:c send", "a=simulcast:send b;c"];
        assert_eq!(limit(&offer(&lines), 2).unwrap(), offer(&expected));
        assert_eq!(limit(&offer(&lines), 0).unwrap(), offer(&[]));
        // Each codec has its layers.
        let rids = ["a=rid:a send pt=96", "a=rid:b send pt=98", "a=rid:c send"];
        let av1 = [&rids[..], &["a=rtpmap:98 AV1/90000", "a=simulcast:send a;b;c"]].concat();
        let limited = super::limit(&offer(&av1), Some(Codec::Av1), 3).unwrap();
        assert!(limited.contains("a=simulcast:send b;c\r\n"), "{limited}");
        // Nothing else is changed.
        assert_eq!(limit("", 3).unwrap(), "");
        assert_eq!(limit(&offer(&expected), 3).unwrap(), offer(&expected));
    }

    #[test]
    fn what_was_limited_stays_as_it_is() {
        let rids =
            ["a=rid:a send", "a=rid:b send pt=96;x", "a=rid:c send", "a=simulcast:send b,a;~c;a"];
        let video = offer(&rids);
        // Audio has no layers, wherever its description is.
        let whole = format!("{}{video}", video.replace("m=video", "m=audio"));
        assert_eq!(limit(&whole, 2).unwrap().matches("a=simulcast:").count(), 1);
        for end in 0..=whole.len() {
            let once = limit(&whole[..end], 2).unwrap();
            assert_eq!(limit(&once, 2).unwrap(), once, "{end}");
        }
    }

    #[test]
    fn names_that_name_no_layer_are_refused() {
        for (rids, simulcast) in [
            (&["a=rid:a send"][..], "a;a"),
            (&["a=rid:a send", "a=rid:a send"], "a"),
            (&["a=rid:a send"], "a;~a"),
            (&["a=rid:a/b send"], "a/b"),
            (&["a=rid:ü send"], "ü"),
            (&["a=rid:123456789 send"], "123456789"),
        ] {
            let simulcast = format!("a=simulcast:send {simulcast}");
            let lines = [rids, &[simulcast.as_str()]].concat();
            let error = limit(&offer(&lines), 3).unwrap_err();
            assert!(error.starts_with("a=rid:"), "{error}");
        }
    }
}
