/// The delivery directives in a player's query for a media playlist, RFC 8216bis 6.2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// `_HLS_msn`: the answer must contain this segment.
    pub msn: Option<u64>,
    /// `_HLS_part`: the answer need only contain this part of the segment.
    pub part: Option<u64>,
    /// `_HLS_skip`: whether the player accepts a delta update.
    pub skip: Skip,
}

/// `_HLS_skip`, RFC 8216bis 6.2.5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Skip {
    /// The player wants the whole playlist.
    #[default]
    No,
    /// `YES`: segments may be skipped.
    Yes,
    /// `v2`: segments and date ranges may be skipped.
    V2,
}

/// Why a query was refused. The status of the answer is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The value is not a decimal integer below 2^64.
    #[error("{0} is not a decimal integer")]
    Number(&'static str),
    /// The value is neither `YES` nor `v2`.
    #[error("_HLS_skip is neither YES nor v2")]
    Skip,
    /// A directive occurs more than once.
    #[error("{0} occurs twice")]
    Twice(&'static str),
    /// A part is requested without its segment.
    #[error("_HLS_part without _HLS_msn")]
    PartWithoutSegment,
}

/// How far a media playlist is: the facts that decide whether it answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// Media Sequence Number of the segment that is being made, or of the next one: one more than
    /// that of the last complete segment.
    pub open_msn: u64,
    /// How many parts that segment has so far.
    pub open_parts: u64,
    /// How many parts the last complete segment has.
    pub last_segment_parts: u64,
    /// PART-TARGET in microseconds, where the playlist has parts.
    pub part_target_micros: Option<u64>,
    /// Whether the stream is over.
    pub ended: bool,
}

/// What a server must do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Answer with the playlist as it is.
    Now,
    /// Hold the request until the playlist contains this segment or part. Decide again at each new
    /// state, because a segment may turn out to have fewer parts.
    Wait {
        /// Media Sequence Number of the segment.
        msn: u64,
        /// Index of the part; `None` for the whole segment.
        part: Option<u64>,
    },
    /// The request is too far ahead to wait for: answer with 400.
    TooFar,
}

impl Request {
    /// Reads the directives in a query string, the part of a URL behind `?`. Other parameters are
    /// ignored.
    ///
    /// # Errors
    /// A directive's value is malformed, a directive occurs twice, or a part is requested without
    /// its segment.
    pub fn parse(query: &str) -> Result<Self, RequestError> {
        let mut request = Self::default();
        let mut skip = None;
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "_HLS_msn" => once(&mut request.msn, "_HLS_msn", number("_HLS_msn", value)?)?,
                "_HLS_part" => once(&mut request.part, "_HLS_part", number("_HLS_part", value)?)?,
                "_HLS_skip" => once(
                    &mut skip,
                    "_HLS_skip",
                    match value {
                        "YES" => Skip::Yes,
                        "v2" => Skip::V2,
                        _ => return Err(RequestError::Skip),
                    },
                )?,
                _ => {}
            }
        }
        request.skip = skip.unwrap_or_default();
        if request.part.is_some() && request.msn.is_none() {
            return Err(RequestError::PartWithoutSegment);
        }
        Ok(request)
    }

    /// Decides about the request while the playlist is in `state`, RFC 8216bis 6.2.5.2.
    pub fn decide(&self, state: &State) -> Decision {
        let Some(msn) = self.msn else { return Decision::Now };
        if state.ended {
            return Decision::Now;
        }
        // Two more than the last complete segment, which is the one before the open segment.
        if msn > state.open_msn.saturating_add(1) {
            return Decision::TooFar;
        }
        // In a playlist without parts, only segments can be waited for.
        let part = self.part.filter(|_| state.part_target_micros.is_some());
        let Some(part) = part else {
            return if msn < state.open_msn {
                Decision::Now
            } else {
                Decision::Wait { msn, part: None }
            };
        };
        // A part beyond the end of a complete segment means the first part of the next one.
        let past_end =
            msn.checked_add(1) == Some(state.open_msn) && part >= state.last_segment_parts;
        let (msn, part) = if past_end { (state.open_msn, 0) } else { (msn, part) };
        if msn < state.open_msn || (msn == state.open_msn && part < state.open_parts) {
            return Decision::Now;
        }
        // How many parts are still missing. For a segment that has not begun, at least its own
        // parts up to the requested one.
        let ahead = if msn == state.open_msn {
            part.saturating_add(1) - state.open_parts
        } else {
            part.saturating_add(1)
        };
        if ahead > advance_part_limit(state.part_target_micros.unwrap_or(0)) {
            return Decision::TooFar;
        }
        Decision::Wait { msn, part: Some(part) }
    }
}

/// Advance Part Limit, RFC 8216bis 6.2.5.2: how far beyond the newest part a request may be. It is
/// the number of parts in three seconds, at least three. `part_target_micros` is PART-TARGET.
pub fn advance_part_limit(part_target_micros: u64) -> u64 {
    if part_target_micros < 1_000_000 {
        3_000_000u64.div_ceil(part_target_micros.max(1))
    } else {
        3
    }
}

fn once<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), RequestError> {
    match slot.replace(value) {
        Some(_) => Err(RequestError::Twice(name)),
        None => Ok(()),
    }
}

/// A decimal-integer, RFC 8216bis 4.2: digits only.
fn number(name: &'static str, value: &str) -> Result<u64, RequestError> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits).ok_or(RequestError::Number(name))
}
