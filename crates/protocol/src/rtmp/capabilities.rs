use super::amf0::Value;

/// A FourCC, or `*` for any, and what the side can do with it: [`Capabilities::CAN_FORWARD`] and so
/// on.
pub type FourCcInfo = (String, u32);

/// Capabilities that a side announces in `connect` and its answer (Enhanced RTMP v2, "Enhancing
/// NetConnection connect Command"). All are empty where the peer speaks plain RTMP 1.0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `fourCcList` (v1): FourCCs, or `*`, that the side supports in some way.
    pub fourcc_list: Vec<String>,
    /// `videoFourCcInfoMap`.
    pub video: Vec<FourCcInfo>,
    /// `audioFourCcInfoMap`.
    pub audio: Vec<FourCcInfo>,
    /// `capsEx`: a union of [`Capabilities::RECONNECT`] and so on.
    pub caps_ex: u32,
}

/// The most FourCCs in a list. Fewer than twenty exist.
const MAX_FOURCCS: usize = 64;

impl Capabilities {
    /// FourCcInfoMask: can forward.
    pub const CAN_FORWARD: u32 = 4;
    /// CapsExMask: understands the request to reconnect.
    pub const RECONNECT: u32 = 1;
    /// CapsExMask: understands multitrack.
    pub const MULTITRACK: u32 = 2;
    /// CapsExMask: understands ModEx packet types.
    pub const MODEX: u32 = 4;
    /// CapsExMask: understands nanosecond offsets.
    pub const TIMESTAMP_NANO_OFFSET: u32 = 8;

    /// A side that forwards anything, and understands multitrack, ModEx and reconnecting.
    pub fn forward_all() -> Self {
        Self { fourcc_list: vec!["*".to_owned()], ..Self::forward(&["*"], &["*"]) }
    }

    /// A side that forwards these codecs by FourCC, and understands multitrack, ModEx and reconnecting.
    pub fn forward(video: &[&str], audio: &[&str]) -> Self {
        let can = |fourccs: &[&str]| -> Vec<FourCcInfo> {
            fourccs.iter().map(|&fourcc| (fourcc.to_owned(), Self::CAN_FORWARD)).collect()
        };
        Self {
            fourcc_list: video.iter().chain(audio).map(|&fourcc| fourcc.to_owned()).collect(),
            video: can(video),
            audio: can(audio),
            caps_ex: Self::RECONNECT | Self::MULTITRACK | Self::MODEX,
        }
    }

    /// Whether any capability was announced.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all bits of `mask` are in `capsEx`.
    pub fn has(&self, mask: u32) -> bool {
        self.caps_ex & mask == mask
    }

    /// The same capabilities without these bits of `capsEx`.
    #[must_use]
    pub fn without(mut self, mask: u32) -> Self {
        self.caps_ex &= !mask;
        self
    }

    /// Reads the capabilities in an object of `connect` or its answer. Malformed ones count as
    /// absent.
    pub(crate) fn read(object: &Value) -> Self {
        let list = match object.property("fourCcList") {
            Some(Value::StrictArray(values)) => values.as_slice(),
            _ => &[],
        };
        let map = |name| {
            let map = object.property(name).and_then(Value::properties).unwrap_or_default();
            map.iter()
                .take(MAX_FOURCCS)
                .filter_map(|(fourcc, mask)| Some((fourcc.clone(), mask.as_number()? as u32)))
                .collect()
        };
        Self {
            fourcc_list: list
                .iter()
                .take(MAX_FOURCCS)
                .filter_map(|fourcc| fourcc.as_str().map(str::to_owned))
                .collect(),
            video: map("videoFourCcInfoMap"),
            audio: map("audioFourCcInfoMap"),
            caps_ex: object.property("capsEx").and_then(Value::as_number).unwrap_or(0.0) as u32,
        }
    }

    /// Properties that announce these capabilities; none for empty ones.
    pub(crate) fn properties(&self) -> Vec<(String, Value)> {
        let mut properties = Vec::new();
        if !self.fourcc_list.is_empty() {
            let list = self.fourcc_list.iter().map(Value::string).collect();
            properties.push(("fourCcList".to_owned(), Value::StrictArray(list)));
        }
        for (name, map) in
            [("videoFourCcInfoMap", &self.video), ("audioFourCcInfoMap", &self.audio)]
        {
            if !map.is_empty() {
                let masks = map.iter().map(|(key, mask)| (key, Value::Number(f64::from(*mask))));
                properties.push((name.to_owned(), Value::object(masks)));
            }
        }
        if self.caps_ex != 0 {
            properties.push(("capsEx".to_owned(), Value::Number(f64::from(self.caps_ex))));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let all = Capabilities::forward_all();
        assert_eq!(Capabilities::read(&Value::Object(all.properties())), all);
        assert!(all.has(Capabilities::RECONNECT | Capabilities::MODEX));
        assert!(!all.has(Capabilities::TIMESTAMP_NANO_OFFSET));
    }

    #[test]
    fn nonsense_counts_as_not_said() {
        let object = Value::object([
            ("fourCcList", Value::Number(1.0)),
            ("videoFourCcInfoMap", Value::object([("hvc1", Value::Null)])),
            ("capsEx", Value::Number(f64::NAN)),
        ]);
        assert!(Capabilities::read(&object).is_empty());
        assert!(Capabilities::read(&Value::Null).is_empty());
        assert!(Capabilities::default().properties().is_empty());
    }
}
