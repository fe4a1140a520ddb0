use super::amf0::{self, Value};
use super::message::{self, Message};
use super::{Error, amf0::Reader};

/// A command message (7.1.1 and 7.2): name, transaction, and arguments that depend on the name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) transaction: f64,
    /// Arguments, beginning with the command object.
    pub(crate) arguments: Vec<Value>,
}

impl Command {
    pub(crate) fn read(message: &Message) -> Result<Self, Error> {
        let mut values = values(message)?.into_iter();
        let Some(Value::String(name)) = values.next() else {
            return Err(Error::misbehaved("command without a name", message.at)
                .on(message.kind, message.csid));
        };
        // Some peers leave out the transaction where they expect no answer.
        let transaction = values.next().as_ref().and_then(Value::as_number).unwrap_or(0.0);
        Ok(Self { name, transaction, arguments: values.collect() })
    }

    /// The argument with that index after the command object.
    pub(crate) fn argument(&self, index: usize) -> Option<&Value> {
        self.arguments.get(index + 1)
    }

    pub(crate) fn text(&self, index: usize) -> &str {
        self.argument(index).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn number(&self, index: usize) -> Option<f64> {
        self.argument(index).and_then(Value::as_number)
    }
}

/// Reads the values of a command or data message. The AMF3 forms are AMF0 after a leading 0 byte,
/// which some peers leave out.
pub(crate) fn values(message: &Message) -> Result<Vec<Value>, Error> {
    let body = body(message);
    let mut reader = Reader::new(&message.payload[body..]);
    let mut values = Vec::new();
    while !reader.is_empty() {
        let value = reader.value().map_err(|mut error| {
            error.at += body as u64;
            error.in_payload(message.kind, message.csid, message.at)
        })?;
        values.push(value);
    }
    Ok(values)
}

/// Position in the payload where the AMF0 values of a message begin.
pub(crate) fn body(message: &Message) -> usize {
    let amf3 = matches!(message.kind, message::DATA_AMF3 | message::COMMAND_AMF3);
    usize::from(amf3 && message.payload.first() == Some(&0))
}

/// The payload of a command: name, transaction, then `arguments` from the command object on.
pub(crate) fn payload(name: &str, transaction: f64, arguments: &[Value]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(256);
    amf0::encode_str(name, &mut payload);
    amf0::encode(&Value::Number(transaction), &mut payload);
    for argument in arguments {
        amf0::encode(argument, &mut payload);
    }
    payload
}

/// An information object (7.2.2): `level` is `status`, `warning` or `error`.
pub(crate) fn information(level: &str, code: &str, description: &str) -> Vec<(String, Value)> {
    [("level", level), ("code", code), ("description", description)]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), Value::string(text)))
        .collect()
}

/// Splits text at its first `?`, which is in neither part. Without one, the second part is empty.
pub(crate) fn split_query(text: &str) -> (String, String) {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    (path.to_owned(), query.to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(kind: u8, payload: Vec<u8>) -> Message {
        Message { csid: 3, kind, stream_id: 0, timestamp: 0, payload: Bytes::from(payload), at: 9 }
    }

    #[test]
    fn reads_amf0_and_both_forms_of_amf3() {
        let plain = payload("play", 4.0, &[Value::Null, Value::string("x?y=z")]);
        let mut prefixed = vec![0];
        prefixed.extend_from_slice(&plain);
        for (kind, bytes) in [
            (message::COMMAND_AMF0, plain.clone()),
            (message::COMMAND_AMF3, plain),
            (message::COMMAND_AMF3, prefixed),
        ] {
            let command = Command::read(&message(kind, bytes)).unwrap();
            assert_eq!((command.name.as_str(), command.transaction), ("play", 4.0));
            assert_eq!(command.text(0), "x?y=z");
            assert_eq!(command.text(1), "");
        }
        assert_eq!(split_query("x?y=z?"), ("x".to_owned(), "y=z?".to_owned()));
    }

    #[test]
    fn errors_name_the_message() {
        let error =
            Command::read(&message(message::COMMAND_AMF0, vec![2, 0, 9, b'x'])).unwrap_err();
        assert_eq!((error.message_type, error.csid, error.at), (Some(20), Some(3), 9));
        assert!(error.to_string().contains("payload byte 3"), "{error}");
        assert!(Command::read(&message(message::COMMAND_AMF0, vec![5])).is_err());
        assert!(Command::read(&message(message::COMMAND_AMF0, vec![])).is_err());
    }
}
