//! AMF0, the serialization of RTMP commands and metadata (Adobe "Action Message Format -- AMF 0").

use super::Error;

/// Containers may be nested this deep. Real commands need three levels.
pub const MAX_DEPTH: usize = 32;
/// The most values in a message, nested ones included. A decoded value takes up to 80 bytes,
/// however short it is on the wire. So decoding takes at most about 1 MiB in addition to the text.
pub const MAX_VALUES: usize = 8192;

/// Names and values of an object, in their order on the wire. Names may repeat.
pub type Properties = Vec<(String, Value)>;

/// One AMF0 value (clause 2).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Marker 0: an IEEE 754 double.
    Number(f64),
    /// Marker 1; any byte but 0 is true.
    Boolean(bool),
    /// Marker 2 or 12. Text that is not UTF-8 is read as Latin-1, because old encoders write that.
    String(String),
    /// Marker 3.
    Object(Properties),
    /// Marker 5.
    Null,
    /// Marker 6.
    Undefined,
    /// Marker 7: the n-th object or array of the same message. The reader checks that it exists,
    /// but does not resolve it: copying would let a few bytes grow without bound.
    Reference(u16),
    /// Marker 8: encoded like an object. Its count on the wire is only a hint.
    EcmaArray(Properties),
    /// Marker 10.
    StrictArray(Vec<Value>),
    /// Marker 11.
    Date {
        /// Milliseconds since 1970-01-01 UTC; may be any double.
        milliseconds: f64,
        /// Reserved, should be 0.
        zone: i16,
    },
    /// Marker 13: a value the sender could not serialize.
    Unsupported,
    /// Marker 15.
    XmlDocument(String),
    /// Marker 16: an object with a class name.
    TypedObject {
        /// Name of the class.
        class: String,
        /// Its properties.
        properties: Properties,
    },
}

impl Value {
    /// A string value.
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    /// An object from names and values.
    pub fn object<N: Into<String>>(properties: impl IntoIterator<Item = (N, Self)>) -> Self {
        Self::Object(properties.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// The number, if this is one.
    pub fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The boolean, if this is one. A number counts as in ECMAScript, because peers mix them up.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            Self::Number(value) => Some(*value != 0.0),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The properties, if this is an object, a typed object or an ECMA array.
    pub fn properties(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(properties)
            | Self::EcmaArray(properties)
            | Self::TypedObject { properties, .. } => Some(properties),
            _ => None,
        }
    }

    /// The first property of that name, if this has properties.
    pub fn property(&self, name: &str) -> Option<&Self> {
        self.properties()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// Reads the values of a message one after the other.
///
/// It reads at most [`MAX_DEPTH`] levels and [`MAX_VALUES`] values. Positions in errors count from
/// the start of the given bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    values_left: usize,
    /// Number of objects and arrays so far. References are indexes into them (clause 2.9).
    complex: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, values_left: MAX_VALUES, complex: 0 }
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// How many bytes have been read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Reads the next value.
    ///
    /// # Errors
    /// The bytes are cut off, break the format, exceed a limit, or switch to AMF3.
    pub fn value(&mut self) -> Result<Value, Error> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<Value, Error> {
        let at = self.at as u64;
        if depth > MAX_DEPTH {
            return Err(Error::limit(format!("AMF0 nested deeper than {MAX_DEPTH} levels"), at));
        }
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| Error::limit(format!("more than {MAX_VALUES} AMF0 values"), at))?;
        let [marker] = self.array("type marker")?;
        Ok(match marker {
            0 => Value::Number(f64::from_be_bytes(self.array("number")?)),
            1 => {
                let [byte] = self.array("boolean")?;
                Value::Boolean(byte != 0)
            }
            2 => Value::String(self.short_text()?),
            3 => {
                self.complex += 1;
                Value::Object(self.object(depth, false)?)
            }
            5 => Value::Null,
            6 => Value::Undefined,
            7 => {
                let index = u16::from_be_bytes(self.array("reference")?);
                if usize::from(index) >= self.complex {
                    return Err(Error::misbehaved(
                        format!("AMF0 reference {index} to one of {} objects", self.complex),
                        at,
                    ));
                }
                Value::Reference(index)
            }
            8 => {
                self.complex += 1;
                self.array::<4>("ECMA array count")?;
                Value::EcmaArray(self.object(depth, true)?)
            }
            10 => {
                self.complex += 1;
                let count = u32::from_be_bytes(self.array("strict array count")?) as usize;
                // Every value takes at least a byte, so a count larger than the rest of the message
                // is refused at once.
                if count > self.bytes.len() - self.at {
                    return Err(Error::misbehaved(
                        format!("AMF0 strict array of {count} values is cut off"),
                        at,
                    ));
                }
                let mut values = Vec::with_capacity(count.min(16));
                for _ in 0..count {
                    values.push(self.nested(depth + 1)?);
                }
                Value::StrictArray(values)
            }
            11 => Value::Date {
                milliseconds: f64::from_be_bytes(self.array("date")?),
                zone: i16::from_be_bytes(self.array("time zone")?),
            },
            12 => Value::String(self.long_text()?),
            13 => Value::Unsupported,
            15 => Value::XmlDocument(self.long_text()?),
            16 => {
                self.complex += 1;
                let class = self.short_text()?;
                Value::TypedObject { class, properties: self.object(depth, false)? }
            }
            17 => return Err(Error::unsupported("AMF3 value inside AMF0", at)),
            4 | 14 => return Err(Error::unsupported(format!("AMF0 type marker {marker}"), at)),
            9 => return Err(Error::misbehaved("AMF0 object end outside of an object", at)),
            _ => return Err(Error::misbehaved(format!("AMF0 type marker {marker}"), at)),
        })
    }

    /// Reads names and values up to the end marker. An ECMA array may also end with the message,
    /// because some encoders leave out its end marker.
    fn object(&mut self, depth: usize, may_end: bool) -> Result<Properties, Error> {
        let mut properties = Properties::new();
        loop {
            if may_end && self.is_empty() {
                return Ok(properties);
            }
            let at = self.at as u64;
            let name = self.short_text()?;
            if name.is_empty() && self.bytes.get(self.at) == Some(&9) {
                self.at += 1;
                return Ok(properties);
            }
            if self.is_empty() {
                return Err(Error::misbehaved("AMF0 property without a value", at));
            }
            properties.push((name, self.nested(depth + 1)?));
        }
    }

    fn short_text(&mut self) -> Result<String, Error> {
        let length = u16::from_be_bytes(self.array("string length")?);
        self.text(usize::from(length))
    }

    fn long_text(&mut self) -> Result<String, Error> {
        let length = u32::from_be_bytes(self.array("long string length")?);
        self.text(length as usize)
    }

    fn text(&mut self, length: usize) -> Result<String, Error> {
        let bytes = self.take(length, "string")?;
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
        })
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let left = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = left.get(..length) else {
            return Err(Error::misbehaved(
                format!("AMF0 {what} is cut off: {length} bytes announced, {} present", left.len()),
                self.at as u64,
            ));
        };
        self.at += length;
        Ok(taken)
    }
}

/// Reads all values of a message.
///
/// # Errors
/// The same as those of [`Reader::value`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Value>, Error> {
    let mut reader = Reader::new(bytes);
    let mut values = Vec::new();
    while !reader.is_empty() {
        values.push(reader.value()?);
    }
    Ok(values)
}

/// Appends one value. Strings of more than 65,535 bytes are written as long strings. Names of
/// properties and classes have no long form and are cut at that length.
pub fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => {
            out.push(0);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::Boolean(value) => out.extend_from_slice(&[1, u8::from(*value)]),
        Value::String(text) => encode_str(text, out),
        Value::Object(properties) => {
            out.push(3);
            encode_properties(properties, out);
        }
        Value::Null => out.push(5),
        Value::Undefined => out.push(6),
        Value::Reference(index) => {
            out.push(7);
            out.extend_from_slice(&index.to_be_bytes());
        }
        Value::EcmaArray(properties) => {
            out.push(8);
            out.extend_from_slice(&count(properties.len()));
            encode_properties(properties, out);
        }
        Value::StrictArray(values) => {
            out.push(10);
            out.extend_from_slice(&count(values.len()));
            for value in values {
                encode(value, out);
            }
        }
        Value::Date { milliseconds, zone } => {
            out.push(11);
            out.extend_from_slice(&milliseconds.to_be_bytes());
            out.extend_from_slice(&zone.to_be_bytes());
        }
        Value::Unsupported => out.push(13),
        Value::XmlDocument(text) => {
            out.push(15);
            out.extend_from_slice(&count(text.len()));
            out.extend_from_slice(text.as_bytes());
        }
        Value::TypedObject { class, properties } => {
            out.push(16);
            encode_name(class, out);
            encode_properties(properties, out);
        }
    }
}

/// The bytes of values, one after the other.
pub fn encode_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for value in values {
        encode(value, &mut out);
    }
    out
}

pub(crate) fn encode_str(text: &str, out: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(text.len()) {
        out.push(2);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(12);
        out.extend_from_slice(&count(text.len()));
    }
    out.extend_from_slice(text.as_bytes());
}

/// A length or count in the form of the wire. A length above 32 bits would exceed any message.
fn count(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn encode_properties(properties: &[(String, Value)], out: &mut Vec<u8>) {
    for (name, value) in properties {
        encode_name(name, out);
        encode(value, out);
    }
    out.extend_from_slice(&[0, 0, 9]);
}

fn encode_name(name: &str, out: &mut Vec<u8>) {
    let mut end = name.len().min(usize::from(u16::MAX));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    out.extend_from_slice(&u16::try_from(end).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&name.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(testkit::corpus_dir().join("rtmp/amf").join(name)).unwrap()
    }

    fn one(name: &str) -> Result<Value, Error> {
        let bytes = fixture(name);
        let mut reader = Reader::new(&bytes);
        let value = reader.value()?;
        assert!(reader.is_empty(), "{name}: {} of {} bytes read", reader.position(), bytes.len());
        Ok(value)
    }

    /// A value of each kind, with its bytes as in the specification (AMF 0, 2.2 to 2.18).
    fn written() -> Vec<(&'static [u8], Value)> {
        let property = |name: &str, value| (name.to_owned(), value);
        let foo = || vec![property("foo", Value::string("baz"))];
        vec![
            (b"\x00\x40\x0c\0\0\0\0\0\0", Value::Number(3.5)),
            (b"\x00\x7f\xf0\0\0\0\0\0\0", Value::Number(f64::INFINITY)),
            (b"\x00\xff\xf0\0\0\0\0\0\0", Value::Number(f64::NEG_INFINITY)),
            (b"\x01\x01", Value::Boolean(true)),
            (b"\x01\x00", Value::Boolean(false)),
            (b"\x02\0\x07\xe3\x83\x86 \xc3\xa9!", Value::string("テ é!")),
            (b"\x03\0\x03foo\x02\0\x03baz\0\0\x09", Value::Object(foo())),
            (b"\x05", Value::Null),
            (b"\x06", Value::Undefined),
            (b"\x0a\0\0\0\x01\x07\0\0", Value::StrictArray(vec![Value::Reference(0)])),
            (b"\x08\0\0\0\x01\0\x03foo\x02\0\x03baz\0\0\x09", Value::EcmaArray(foo())),
            (
                b"\x0a\0\0\0\x03\0\x3f\xf0\0\0\0\0\0\0\x02\0\x012\x05",
                Value::StrictArray(vec![Value::Number(1.0), Value::string("2"), Value::Null]),
            ),
            (b"\x0b\xbf\xf0\0\0\0\0\0\0\0\0", Value::Date { milliseconds: -1.0, zone: 0 }),
            (b"\x0c\0\0\0\x04long", Value::string("long")),
            (b"\x0d", Value::Unsupported),
            (b"\x0f\0\0\0\x04<a/>", Value::XmlDocument("<a/>".into())),
            (
                b"\x10\0\x09org.Class\0\x03foo\x02\0\x03baz\0\0\x09",
                Value::TypedObject { class: "org.Class".into(), properties: foo() },
            ),
        ]
    }

    #[test]
    fn reads_every_kind_of_value() {
        for (bytes, value) in written() {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.value(), Ok(value.clone()));
            assert!(reader.is_empty(), "{value:?}");
        }
        for nan in [b"\x00\x7f\xf8\0\0\0\0\0\0", b"\x00\x7f\xf0\0\0\0\0\0\x01"] {
            assert!(decode(nan).unwrap()[0].as_number().unwrap().is_nan());
        }
        let long = [&b"\x0c\0\x01\0\x13"[..], &[b'x'; 65_555]].concat();
        assert_eq!(decode(&long).unwrap()[0].as_str().unwrap().len(), 65_555);
        let (object, _) = written().swap_remove(6);
        let object = decode(object).unwrap().remove(0);
        assert_eq!(object.property("foo"), Some(&Value::string("baz")));
        assert_eq!(object.property("none"), None);
    }

    #[test]
    fn refuses_what_is_broken_or_unknown() {
        use crate::rtmp::Blame;
        for (bytes, value) in written() {
            // Cut anywhere. An ECMA array without its end marker is accepted, because some encoders
            // write it so.
            let whole = if matches!(value, Value::EcmaArray(_)) { 5 } else { bytes.len() };
            for end in 1..whole {
                let error = decode(&bytes[..end]).expect_err("cut off");
                assert_eq!(error.blame, Blame::PeerMisbehaved, "{value:?} at {end}: {error}");
            }
        }
        // An end of object without an object, and an undefined marker.
        for broken in [&b"\x09"[..], b"a"] {
            let error = decode(broken).expect_err("broken");
            assert_eq!(error.blame, Blame::PeerMisbehaved, "{broken:?}: {error}");
        }
        // Movie clip, record set, AMF 3.
        for unsupported in [&b"\x04"[..], b"\x0e", b"\x11\x0a\x0b\x01"] {
            let error = decode(unsupported).expect_err("unsupported");
            assert_eq!(error.blame, Blame::Unsupported, "{unsupported:?}: {error}");
        }
    }

    #[test]
    #[ignore = "corpus"]
    fn corpus_reads_every_valid_fixture() {
        assert_eq!(one("amf0-number.bin"), Ok(Value::Number(3.5)));
        assert_eq!(one("amf0-number-positive-infinity.bin"), Ok(Value::Number(f64::INFINITY)));
        assert_eq!(one("amf0-number-negative-infinity.bin"), Ok(Value::Number(f64::NEG_INFINITY)));
        assert!(one("amf0-number-quiet-nan.bin").unwrap().as_number().unwrap().is_nan());
        assert!(one("amf0-number-signaling-nan.bin").unwrap().as_number().unwrap().is_nan());
        assert_eq!(one("amf0-boolean-true.bin"), Ok(Value::Boolean(true)));
        assert_eq!(one("amf0-boolean-false.bin"), Ok(Value::Boolean(false)));
        assert_eq!(one("amf0-string.bin"), Ok(Value::string("this is a テスト")));
        assert_eq!(one("amf0-long-string.bin").unwrap().as_str().unwrap().len(), 65555);
        assert_eq!(one("amf0-null.bin"), Ok(Value::Null));
        assert_eq!(one("amf0-undefined.bin"), Ok(Value::Undefined));
        assert_eq!(one("amf0-unsupported.bin"), Ok(Value::Unsupported));
        assert_eq!(
            one("amf0-strict-array.bin"),
            Ok(Value::StrictArray(vec![
                Value::Number(1.0),
                Value::string("2"),
                Value::Number(3.0)
            ]))
        );
        let object = one("amf0-object.bin").unwrap();
        assert_eq!(object.property("foo"), Some(&Value::string("baz")));
        assert_eq!(object.property("bar").and_then(Value::as_number).unwrap().to_string(), "3.14");
        assert_eq!(object.property("none"), None);
        let untyped = one("amf0-untyped-object.bin").unwrap();
        assert_eq!(untyped.property("baz"), Some(&Value::Null));
        let Value::TypedObject { class, properties } = one("amf0-typed-object.bin").unwrap() else {
            panic!("not typed");
        };
        assert_eq!(class, "org.amf.ASClass");
        assert_eq!(properties.len(), 2);
        assert_eq!(one("amf0-hash.bin").unwrap().properties().unwrap().len(), 2);
        assert_eq!(one("amf0-ecma-ordinal-array.bin").unwrap().properties().unwrap().len(), 4);
        assert_eq!(
            one("amf0-date.bin"),
            Ok(Value::Date { milliseconds: 1_590_796_800_000.0, zone: 0 })
        );
        assert_eq!(one("amf0-date-minus.bin"), Ok(Value::Date { milliseconds: -1.0, zone: 0 }));
        assert!(matches!(one("amf0-date-invalid.bin"), Ok(Value::Date { .. })));
        assert!(matches!(one("amf0-time.bin"), Ok(Value::Date { .. })));
        assert!(matches!(one("amf0-xml-doc.bin"), Ok(Value::XmlDocument(_))));
        assert_eq!(
            one("amf0-circular-reference.bin"),
            Ok(Value::StrictArray(vec![Value::Reference(0)]))
        );
        assert_eq!(one("amf0-ref-test.bin").unwrap().properties().unwrap().len(), 2);
        assert_eq!(
            one("amf0-complex-encoded-string.bin").unwrap().property("utf"),
            Some(&Value::string("UTF テスト"))
        );
    }

    #[test]
    #[ignore = "corpus"]
    fn corpus_refuses_every_broken_fixture() {
        use crate::rtmp::Blame;
        for name in [
            "amf0-bad-object-end.bin",
            "amf0-bad-reference.bin",
            "amf0-boolean-partial.bin",
            "amf0-date-partial.bin",
            "amf0-ecma-array-partial.bin",
            "amf0-long-string-partial.bin",
            "amf0-number-partial.bin",
            "amf0-object-partial.bin",
            "amf0-reference-partial.bin",
            "amf0-strict-array-partial.bin",
            "amf0-string-partial.bin",
            "amf0-typed-object-partial.bin",
            "amf0-unknown-marker.bin",
            "amf0-xml-document-partial.bin",
        ] {
            let error = decode(&fixture(name)).expect_err(name);
            assert_eq!(error.blame, Blame::PeerMisbehaved, "{name}: {error}");
        }
        for name in ["amf0-avmplus-object.bin", "amf0-movieclip.bin", "amf0-recordset.bin"] {
            let error = decode(&fixture(name)).expect_err(name);
            assert_eq!(error.blame, Blame::Unsupported, "{name}: {error}");
        }
    }

    #[test]
    #[ignore = "corpus"]
    fn corpus_survives_every_fixture_cut_anywhere() {
        let mut files = 0;
        for entry in std::fs::read_dir(testkit::corpus_dir().join("rtmp/amf")).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            for end in 0..=bytes.len().min(300) {
                if let Ok(values) = decode(&bytes[..end]) {
                    // Decoded values can be written and read again.
                    let again = decode(&encode_all(&values)).unwrap();
                    assert_eq!(again.len(), values.len());
                }
            }
            files += 1;
        }
        assert!(files > 90, "{files} fixtures");
    }

    #[test]
    fn bombs_end_early() {
        let deep = [10, 0, 0, 0, 1].repeat(100_000);
        assert!(decode(&deep).unwrap_err().what.contains("deeper"));
        let deep_objects = [3, 0, 1, b'a'].repeat(100_000);
        assert!(decode(&deep_objects).unwrap_err().what.contains("deeper"));
        let mut wide = vec![10, 0, 1, 0, 0];
        wide.extend_from_slice(&[5; 65536]);
        assert!(decode(&wide).unwrap_err().what.contains("more than"));
        assert!(decode(&[10, 0xFF, 0xFF, 0xFF, 0xFF, 5]).unwrap_err().what.contains("cut off"));
        assert!(decode(&[12, 0xFF, 0xFF, 0xFF, 0xFF, 5]).unwrap_err().what.contains("cut off"));
        // The size that the limit is based on.
        assert!(size_of::<(String, Value)>() <= 80);
    }

    #[test]
    fn text_that_is_not_utf8_is_latin1() {
        assert_eq!(decode(&[2, 0, 2, b'a', 0xE4]), Ok(vec![Value::string("aä")]));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            (-1e9..1e9f64).prop_map(Value::Number),
            any::<bool>().prop_map(Value::Boolean),
            ".{0,20}".prop_map(Value::String),
            Just(Value::String("x".repeat(70_000))),
            Just(Value::Null),
            Just(Value::Undefined),
            Just(Value::Unsupported),
            (0.0..1e12f64, any::<i16>())
                .prop_map(|(milliseconds, zone)| Value::Date { milliseconds, zone }),
            ".{0,20}".prop_map(Value::XmlDocument),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let properties = prop::collection::vec((".{1,8}", inner.clone()), 0..5);
            prop_oneof![
                properties.clone().prop_map(Value::Object),
                properties.clone().prop_map(Value::EcmaArray),
                prop::collection::vec(inner, 0..5).prop_map(Value::StrictArray),
                (".{0,8}", properties)
                    .prop_map(|(class, properties)| Value::TypedObject { class, properties }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(value(), 0..4)) {
            prop_assert_eq!(decode(&encode_all(&values)).unwrap(), values);
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
