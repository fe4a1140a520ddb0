//! Cost of a second of a viewer of 1 Mbit/s, which tells 20 times of 6 packets each: decrypting, reading and
//! estimating. `cargo bench -p rtp --bench feedback`

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use rtp::bandwidth::Estimator;
use rtp::feedback;
use rtp::srtp::{Profile, Receiver, Sender};

const PROFILE: Profile = Profile::AeadAes128Gcm;

/// The encrypted messages of a second.
fn second() -> Vec<Vec<u8>> {
    let mut sender = Sender::take(PROFILE, &mut [1; 56], true).unwrap();
    let message = |base: u16| {
        let mut out = vec![0x8f, 205, 0, 6, 0, 0, 0, 1, 0, 0, 0, 2];
        out.extend([base, 6].map(u16::to_be_bytes).concat());
        out.extend([0, 0, 9, 0]);
        // A run of small deltas.
        out.extend((0x2000_u16 | 6).to_be_bytes());
        out.resize(28, 9);
        sender.protect_rtcp(&mut out).unwrap();
        out
    };
    (0..20).map(|at| 6 * at).map(message).collect()
}

fn feedback_of_a_second(c: &mut Criterion) {
    let messages = second();
    c.bench_function("feedback of a second", |b| {
        let new = || {
            let receiver = Receiver::new(PROFILE, &[1; 56], false).unwrap();
            (receiver, Estimator::default(), messages.clone())
        };
        let take =
            |(mut receiver, mut estimator, messages): (Receiver, Estimator, Vec<Vec<u8>>)| {
                for (at, mut message) in (0..).zip(messages) {
                    for packet in 0..6 {
                        estimator.sent(1_000, at * 50_000 + packet);
                    }
                    receiver.unprotect_rtcp(&mut message).unwrap();
                    estimator.take(feedback::read(&message, estimator.next()));
                }
                let observed = estimator.observed();
                assert!(observed.acknowledged > 0);
                observed
            };
        b.iter_batched(new, take, BatchSize::SmallInput);
    });
}

criterion_group!(benches, feedback_of_a_second);
criterion_main!(benches);
