//! AMF0, the serialization of RTMP commands and metadata (Adobe "Action Message Format -- AMF 0").

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{MAX_DEPTH, MAX_VALUES, Reader, decode};
pub(crate) use write::encode_str;
pub use write::{encode, encode_all};

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
