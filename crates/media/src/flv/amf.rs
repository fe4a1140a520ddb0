//! The part of AMF0 that `onMetaData` needs: numbers, booleans and strings at the top level. The
//! reader skips everything else, down to a limited depth.

use crate::Error;

/// Nesting deeper than this is refused. Real metadata has two or three levels.
const MAX_DEPTH: u32 = 16;

const NUMBER: u8 = 0;
const BOOLEAN: u8 = 1;
const STRING: u8 = 2;
const OBJECT: u8 = 3;
const ECMA_ARRAY: u8 = 8;
const OBJECT_END: u8 = 9;
const STRICT_ARRAY: u8 = 10;
const LONG_STRING: u8 = 12;

/// A value, as far as metadata is concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Number(f64),
    Boolean(bool),
    /// Should be UTF-8, but is not checked.
    String(&'a [u8]),
    /// Any other value, such as an object or array. It was skipped.
    Other,
}

/// Reads AMF0 values one after the other.
pub(super) struct Reader<'a> {
    data: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, position: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.position >= self.data.len()
    }

    /// Reads a value. Objects and arrays are skipped.
    pub(super) fn value(&mut self) -> Result<Value<'a>, Error> {
        self.nested(0)
    }

    /// Calls `property` with each property of the object or ECMA array that comes next. Any other
    /// value is skipped.
    pub(super) fn properties(
        &mut self,
        mut property: impl FnMut(&'a [u8], Value<'a>),
    ) -> Result<(), Error> {
        match self.data.get(self.position) {
            Some(&OBJECT) => self.position += 1,
            Some(&ECMA_ARRAY) => {
                // The count is only a hint, and often wrong.
                self.position += 1;
                self.take(4)?;
            }
            _ => return self.value().map(drop),
        }
        self.members(0, &mut property)
    }

    fn nested(&mut self, depth: u32) -> Result<Value<'a>, Error> {
        let at = self.position as u64;
        if depth > MAX_DEPTH {
            return Err(Error::Limit {
                what: "AMF0 depth".into(),
                at,
                value: depth.into(),
                limit: MAX_DEPTH.into(),
            });
        }
        match self.u8()? {
            NUMBER => Ok(Value::Number(f64::from_be_bytes(self.array()?))),
            BOOLEAN => Ok(Value::Boolean(self.u8()? != 0)),
            STRING => self.string().map(Value::String),
            LONG_STRING | 15 => {
                let length = u32::from_be_bytes(self.array()?);
                self.take(length as usize).map(Value::String)
            }
            // Null, undefined, unsupported.
            5 | 6 | 13 => Ok(Value::Other),
            // A reference to an earlier object.
            7 => self.take(2).map(|_| Value::Other),
            // A date: milliseconds and time zone.
            11 => self.take(8 + 2).map(|_| Value::Other),
            OBJECT => self.skip_members(depth),
            ECMA_ARRAY => {
                self.take(4)?;
                self.skip_members(depth)
            }
            // A typed object, which begins with the name of its class.
            16 => {
                self.string()?;
                self.skip_members(depth)
            }
            STRICT_ARRAY => {
                let count = u32::from_be_bytes(self.array()?);
                // Every value takes a byte at least, so the input bounds the loop.
                for _ in 0..count {
                    self.nested(depth + 1)?;
                }
                Ok(Value::Other)
            }
            17 => Err(Error::unsupported("AMF3 in metadata", at)),
            marker => Err(Error::malformed(format!("AMF0: marker {marker}"), at)),
        }
    }

    fn skip_members(&mut self, depth: u32) -> Result<Value<'a>, Error> {
        self.members(depth, &mut |_, _| {}).map(|()| Value::Other)
    }

    /// Reads names and values up to the end marker. Some writers leave the marker out, so the end
    /// of the data also ends the list.
    fn members(
        &mut self,
        depth: u32,
        property: &mut dyn FnMut(&'a [u8], Value<'a>),
    ) -> Result<(), Error> {
        while !self.is_empty() {
            let name = self.string()?;
            if name.is_empty() && self.data.get(self.position) == Some(&OBJECT_END) {
                self.position += 1;
                return Ok(());
            }
            let value = self.nested(depth + 1)?;
            property(name, value);
        }
        Ok(())
    }

    fn string(&mut self) -> Result<&'a [u8], Error> {
        let length = u16::from_be_bytes(self.array()?);
        self.take(length.into())
    }

    fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let rest = self.data.get(self.position..).unwrap_or_default();
        let bytes = *rest.first_chunk().ok_or_else(|| self.cut_off(N))?;
        self.position += N;
        Ok(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let rest = self.data.get(self.position..).unwrap_or_default();
        let bytes = rest.get(..count).ok_or_else(|| self.cut_off(count))?;
        self.position += count;
        Ok(bytes)
    }

    fn cut_off(&self, count: usize) -> Error {
        let left = self.data.len() - self.position;
        Error::cut_off("AMF0 value", self.position as u64, count as u64, left as u64)
    }
}

/// Appends a string value with its marker, cut after 65,535 bytes.
pub(super) fn write_string(out: &mut Vec<u8>, string: &str) {
    out.push(STRING);
    write_name(out, string);
}

/// Appends the count that starts an ECMA array; properties and [`write_end`] follow.
pub(super) fn write_ecma_array(out: &mut Vec<u8>, count: u32) {
    out.push(ECMA_ARRAY);
    out.extend_from_slice(&count.to_be_bytes());
}

pub(super) fn write_number_property(out: &mut Vec<u8>, name: &str, value: f64) {
    write_name(out, name);
    out.push(NUMBER);
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn write_boolean_property(out: &mut Vec<u8>, name: &str, value: bool) {
    write_name(out, name);
    out.extend_from_slice(&[BOOLEAN, u8::from(value)]);
}

pub(super) fn write_string_property(out: &mut Vec<u8>, name: &str, value: &str) {
    write_name(out, name);
    write_string(out, value);
}

pub(super) fn write_end(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, OBJECT_END]);
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&name.as_bytes()[..usize::from(length)]);
}
