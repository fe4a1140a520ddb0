//! Transport-wide feedback of any peer, and the estimator that takes it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rtp::bandwidth::{Estimator, MOST_SENT};
use rtp::feedback;

fuzz_target!(|data: &[u8]| {
    let (mut estimator, mut rest, mut now) = (Estimator::default(), data, 0);
    // How many packets are sent, each how much later, and the length of the feedback on them.
    while let &[packets, later, length, ref after @ ..] = rest {
        let (compound, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        for _ in 0..packets {
            now += u64::from(later) * 100;
            estimator.sent(1_200, now);
        }
        let told = feedback::read(compound, estimator.next());
        // A message has at least 20 bytes.
        assert!(told.len() <= MOST_SENT * (compound.len() / 20));
        let before = estimator.observed();
        estimator.take(told);
        let after = estimator.observed();
        assert!(after.now >= before.now && after.busy >= before.busy);
        assert!(after.acknowledged >= before.acknowledged && after.lost >= 0.0);
        assert!(after.busy <= after.now);
    }
});
