//! Values as bytes.

use super::Value;

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
