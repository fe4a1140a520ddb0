//! Vectors of the RFCs, of libsrtp, and properties.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn sender(rtp: Cipher, rtcp: Cipher) -> Sender {
    Sender { rtp, rtcp, reports: 1 }
}

/// Keys of RFC 7714 16 and 17, which are session keys.
fn vectors_of_gcm(bytes: u8) -> Cipher {
    let key: Vec<u8> = (0..bytes).collect();
    Cipher::gcm(&key, *b"Quid pro quo").unwrap()
}

#[test]
fn counter_mode_of_rfc_3711_b_2() {
    let key = hex("2B7E151628AED2A6ABF7158809CF4F3C");
    let key = EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, &key).unwrap()).unwrap();
    let iv = counter(&hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD"));
    let mut stream = vec![0; 0xff02 * 16];
    key.less_safe_encrypt(&mut stream, EncryptionContext::Iv128(iv.into())).unwrap();
    for (block, expected) in [
        (0, "E03EAD0935C95E80E166B16DD92B4EB4"),
        (1, "D23513162B02D0F72A43A2FE4A5F97AB"),
        (2, "41E95B3BB0A2E8DD477901E4FCA894C0"),
        (0xfeff, "EC8CDF7398607CB0F2D21675EA9EA1E4"),
        (0xff00, "362B7C3C6773516318A077D7FC5073AE"),
        (0xff01, "6A2CC3787889374FBEB4C81B17BA6C44"),
    ] {
        assert_eq!(stream[block * 16..][..16], hex(expected), "{block:x}");
    }
}

#[test]
fn key_derivation_of_rfc_3711_b_3() {
    let key = hex("E1F97A0D3E018BE0D64FA32C06DE4139");
    let salt = hex("0EC675AD498AFEEBB6960B3AABE6");
    for (label, expected) in [
        (ENCRYPTION, "C61E7A93744F39EE10734AFE3FF7A087"),
        (SALT, "30CBBC08863D8C85D49DB34A9AE1"),
        (AUTHENTICATION, "CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4"),
    ] {
        let expected = hex(expected);
        let mut derived = vec![0; expected.len()];
        derive(&key, &salt, label, &mut derived).unwrap();
        assert_eq!(derived, expected, "{label}");
    }
}

#[test]
fn packets_of_rfc_7714_16() {
    let clear = "8040f17b 8041f8d3 5501a0b2 47616c6c 69612065 7374206f 6d6e6973 20646976 69736120
                 696e2070 61727465 73207472 6573";
    for (bytes, expected) in [
        (
            16,
            "8040f17b 8041f8d3 5501a0b2 f24de3a3 fb34de6c acba861c 9d7e4bca be633bd5 0d294e6f
             42a5f47a 51c7d19b 36de3adf 8833899d 7f27beb1 6a9152cf 765ee439 0cce",
        ),
        (
            32,
            "8040f17b 8041f8d3 5501a0b2 32b1de78 a822fe12 ef9f78fa 332e33aa b1801238 9a58e2f3
             b50b2a02 76ffae0f 1ba63799 b87b7aa3 db36dfff d6b0f9bb 7878d7a7 6c13",
        ),
    ] {
        let sender = sender(vectors_of_gcm(bytes), vectors_of_gcm(bytes));
        // What is before the packet stays as it is.
        let mut packets = b"before".to_vec();
        packets.extend(hex(clear));
        sender.protect(Index(0xf17b), &mut packets, 6, 12).unwrap();
        assert_eq!(packets[6..], hex(expected), "{bytes}");
        assert_eq!(&packets[..6], b"before");
    }
}

#[test]
fn reports_of_rfc_7714_17() {
    let clear = "81c8000d 4d617273 4e545031 4e545032 52545020 0000042a 0000e930 4c756e61 deadbeef
                 deadbeef deadbeef deadbeef deadbeef";
    for (bytes, expected) in [
        (
            16,
            "81c8000d 4d617273 63e94885 dcdab67c a727d766 2f6b7e99 7ff5c0f7 6c06f32d c676a5f1
             730d6fda 4ce09b46 86303ded 0bb9275b c84aa458 96cf4d2f c5abf872 45d9eade 800005d4",
        ),
        (
            32,
            "81c8000d 4d617273 d50ae4d1 f5ce5d30 4ba297e4 7d470c28 2c3ece5d bffe0a50 a2eaa5c1
             110555be 8415f658 c61de047 6f1b6fad 1d1eb30c 4446839f 57ff6f6c b26ac3be 800005d4",
        ),
    ] {
        let mut report = hex(clear);
        vectors_of_gcm(bytes).protect_rtcp(0x5d4, &mut report).unwrap();
        assert_eq!(report, hex(expected), "{bytes}");
    }
}

/// The master key and the packets of libsrtp's own test, `srtp_validate`.
#[test]
fn packets_of_libsrtp_with_counter_mode_and_hmac() {
    let key = hex("e1f97a0d3e018be0d64fa32c06de4139");
    let salt = hex("0ec675ad498afeebb6960b3aabe6");
    let mut sender = Sender::new(Profile::Aes128CmSha1_80, &key, &salt).unwrap();
    let mut packet = hex("800f1234 decafbad cafebabe abababab abababab abababab abababab");
    sender.protect(Index(0x1234), &mut packet, 0, 12).unwrap();
    let expected = "800f1234 decafbad cafebabe 4e55dc4c e79978d8 8ca4d215 949d2402 b78d6acc
                    99ea179b 8dbb";
    assert_eq!(packet, hex(expected));
    let mut report = hex("81c8000b cafebabe abababab abababab abababab abababab");
    sender.protect_rtcp(&mut report).unwrap();
    let expected =
        "81c8000b cafebabe 7128035b e487b9bd bef89041 f977a5a8 80000001 993e08cd 54d6c123
                    0798";
    assert_eq!(report, hex(expected));
}

#[test]
fn an_index_is_given_out_once_and_wraps_are_counted() {
    let mut indices = Indices::new(u16::MAX);
    assert_eq!(
        indices.take().map(|index| (index.sequence(), index.number())),
        Some((65535, 65535))
    );
    assert_eq!(indices.take().map(|index| (index.sequence(), index.number())), Some((0, 65536)));
    let mut last = Indices(MOST_PACKETS - 1);
    assert!(last.take().is_some());
    assert_eq!(last.take(), None);

    // The same packet after a wrap is another one to a receiver.
    for (profile, salt) in [(Profile::Aes128CmSha1_80, 14), (Profile::AeadAes128Gcm, 12)] {
        let sender = Sender::new(profile, &[1; 16], &vec![2; salt]).unwrap();
        let encrypted = |index| {
            let mut packet = hex("80600001 00000000 00000005 cafe");
            sender.protect(Index(index), &mut packet, 0, 12).unwrap();
            packet
        };
        assert_ne!(encrypted(1), encrypted(65_537));
    }
}

#[test]
fn what_is_no_packet_is_refused() {
    let mut sender = Sender::new(Profile::AeadAes256Gcm, &[1; 32], &[2; 12]).unwrap();
    let packet = hex("80600001 00000000 00000005 cafe");
    for (index, start, header) in [(2, 0, 12), (1, 0, 8), (1, 0, 15), (1, 3, 12), (1, 20, 12)] {
        assert_eq!(sender.protect(Index(index), &mut packet.clone(), start, header), None);
    }
    assert_eq!(sender.protect_rtcp(&mut vec![0x80, 201, 0, 1]), None);
    sender.reports = MOST_REPORTS;
    assert_eq!(sender.protect_rtcp(&mut hex("80c90001 00000005")), None);
    for (key, salt) in [(16, 12), (32, 14), (32, 0)] {
        assert!(Sender::new(Profile::AeadAes256Gcm, &vec![1; key], &vec![2; salt]).is_none());
    }
}

#[test]
fn keying_material_loses_our_side_and_keeps_the_peers() {
    let profile = Profile::AeadAes128Gcm;
    let material: Vec<u8> = (0..56).collect();
    // Keys of the client and of the server, then their salts.
    for (is_client, own) in [(true, [0..16, 32..44]), (false, [16..32, 44..56])] {
        let mut left = material.clone();
        let taken = Sender::take(profile, &mut left, is_client).unwrap();
        let [key, salt] = own.clone().map(|range| &material[range]);
        let expected = Sender::new(profile, key, salt).unwrap();
        let encrypted = |sender: &Sender| {
            let mut packet = hex("80600001 00000000 00000005 cafe");
            sender.protect(Index(1), &mut packet, 0, 12).unwrap();
            packet
        };
        assert_eq!(encrypted(&taken), encrypted(&expected));
        for own in &own {
            assert_ne!(left[own.clone()], material[own.clone()]);
            assert!(left[own.clone()].iter().any(|byte| *byte != 0));
        }
        let is_own = |place: &usize| own.iter().any(|own| own.contains(place));
        assert!((0..56).filter(|place| !is_own(place)).all(|place| left[place] == material[place]));
    }
    assert!(Sender::take(profile, &mut [0; 55], true).is_none());
}

#[test]
fn reports_of_the_other_side_are_decrypted_once() {
    for profile in [Profile::Aes128CmSha1_80, Profile::AeadAes128Gcm, Profile::AeadAes256Gcm] {
        let (key, salt) = profile.lengths();
        let material: Vec<u8> = (0..2 * (key + salt)).map(|byte| byte as u8).collect();
        for is_client in [false, true] {
            let mut sender = Sender::take(profile, &mut material.clone(), !is_client).unwrap();
            let mut receiver = Receiver::new(profile, &material, is_client).unwrap();
            let report = hex("81c8000d 4d617273 4e545031 4e545032 52545020 0000042a");
            let mut send = || {
                let mut packet = report.clone();
                sender.protect_rtcp(&mut packet).unwrap();
                packet
            };
            let sent: Vec<_> = (0..66).map(|_| send()).collect();
            let mut take =
                |mut packet: Vec<u8>| receiver.unprotect_rtcp(&mut packet).map(|()| packet);
            // In order, and overtaken by others, once each.
            for index in [2, 64, 63, 1] {
                assert_eq!(take(sent[index].clone()).as_ref(), Some(&report), "{profile:?}");
                assert_eq!(take(sent[index].clone()), None, "{profile:?} {index}");
            }
            // It is older than 64 others.
            assert_eq!(take(sent[0].clone()), None, "{profile:?}");
            // Another sender of the same peer counts from 0, too.
            let other = [&report[..4], &[7; 4], &report[8..]].concat();
            for index in [0, 1] {
                let mut packet = other.clone();
                sender.rtcp.protect_rtcp(index, &mut packet).unwrap();
                assert_eq!(take(packet.clone()).as_ref(), Some(&other), "{profile:?} {index}");
                assert_eq!(take(packet), None, "{profile:?} {index}");
            }
            let third = &sent[65];
            // With a bit that is another, anywhere, and shorter.
            for bit in 0..8 * third.len() {
                let mut wrong = third.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(take(wrong), None, "{profile:?} {bit}");
            }
            for length in 0..third.len() {
                assert_eq!(take(third[..length].to_vec()), None, "{profile:?} {length}");
            }
            assert_eq!(take(third.clone()), Some(report), "{profile:?}");
            // Our own are not the peer's.
            let mut own = Sender::take(profile, &mut material.clone(), is_client).unwrap();
            let mut packet = hex("81c8000d 4d617273 4e545031");
            own.protect_rtcp(&mut packet).unwrap();
            assert_eq!(receiver.unprotect_rtcp(&mut packet), None);
        }
        assert!(Receiver::new(profile, &material[1..], true).is_none());
    }
}
