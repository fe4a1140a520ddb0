use proptest::prelude::*;

use super::*;
use crate::rtmp::Error;

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
        Ok(Value::StrictArray(vec![Value::Number(1.0), Value::string("2"), Value::Number(3.0)]))
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
    fn written_values_are_read(values in prop::collection::vec(value(), 0..4)) {
        prop_assert_eq!(decode(&encode_all(&values)).unwrap(), values);
    }

    #[test]
    fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }
}
