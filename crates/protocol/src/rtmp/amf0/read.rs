//! Values from their bytes.

use super::{Properties, Value};
use crate::rtmp::Error;

/// Containers may be nested this deep. Real commands need three levels.
pub const MAX_DEPTH: usize = 32;
/// The most values in a message, nested ones included. A decoded value takes up to 80 bytes,
/// however short it is on the wire. So decoding takes at most about 1 MiB in addition to the text.
pub const MAX_VALUES: usize = 8192;

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
            .ok_or_else(|| Error::unsupported(format!("more than {MAX_VALUES} AMF0 values"), at))?;
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
