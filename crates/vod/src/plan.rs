//! Decides where segments begin.
//!
//! Video segments begin at the keyframes nearest to multiples of the target, counted on the
//! presentation timeline. So two files are cut at the same times where their keyframes agree. Each
//! keyframe is examined once. Audio segments follow the video's times, or the multiples of the
//! target where there is no video. All times are presentation times, with edit lists applied.
//! Nothing here knows files.

use crate::time::multiple_after;

/// Indexes of the keyframes at which segments begin: the first one, and for each multiple of
/// `target` the nearest one. The times of keyframes must rise; `target` is in the same units, and
/// positive. Multiples less than half a target before `end` do not count, so a short rest belongs
/// to the last segment.
pub(crate) fn cut(keyframes: &[i64], end: i64, target: i64) -> Vec<usize> {
    // All times are doubled, so that the middle between two keyframes is an integer.
    let step = 2 * i128::from(target.max(1));
    let halfway = |a: i64, b: i64| i128::from(a) + i128::from(b);
    let last = 2 * i128::from(end) - step / 2;
    let near = |index: usize| {
        let at = keyframes[index];
        let Some(before) = index.checked_sub(1).and_then(|before| keyframes.get(before)) else {
            return true;
        };
        let from = halfway(*before, at);
        let to = keyframes.get(index + 1).map_or(last, |next| halfway(at, *next));
        let multiple = -(-from).div_euclid(step) * step;
        multiple < to.min(last)
    };
    (0..keyframes.len()).filter(|index| near(*index)).collect()
}

/// The keyframes that all renditions have (rising times in microseconds), each as its index in
/// every rendition. Empty where not even the first keyframes agree.
pub(crate) fn common(renditions: &[Vec<i64>]) -> Vec<Vec<usize>> {
    let Some((first, others)) = renditions.split_first() else { return Vec::new() };
    let mut places = vec![0; others.len()];
    let mut found = Vec::new();
    for (index, time) in first.iter().enumerate() {
        let mut row = vec![index];
        for (place, other) in places.iter_mut().zip(others) {
            while other.get(*place).is_some_and(|at| *at < time.saturating_sub(SAME)) {
                *place += 1;
            }
            if other.get(*place).is_some_and(|at| *at <= time.saturating_add(SAME)) {
                row.push(*place);
            }
        }
        let all = row.len() == renditions.len();
        if index == 0 && !(all && row.iter().all(|place| *place == 0)) {
            return Vec::new();
        }
        if all {
            found.push(row);
        }
    }
    found
}

/// By how many microseconds times may differ and still count as the same moment: a timescale of
/// 1,000 rounds by this much.
const SAME: i64 = 1_000;

/// Times at which audio is cut, in the units of the audio track.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// Beginnings of the video's segments, rising; empty where there is no video.
    video: Vec<i64>,
    /// End of the last video segment.
    video_end: i64,
    /// End of the audio.
    end: i64,
    target: i64,
}

impl Grid {
    pub(crate) fn new(video: Vec<i64>, video_end: i64, end: i64, target: i64) -> Self {
        Self { video, video_end, end, target: target.max(1) }
    }

    /// When the video begins.
    pub(crate) fn start(&self) -> Option<i64> {
        self.video.first().copied()
    }

    /// End of the segment that contains `time`. Where there is video, it is the end of the video's
    /// segment. Elsewhere it is a multiple of the target. A rest of less than half the target before
    /// the video, after it, or at the end of the title joins the segment beside it.
    pub(crate) fn after(&self, time: i64) -> i64 {
        let near = self.target / 2;
        let alone = |from: i64| {
            let multiple = multiple_after(from, self.target);
            if multiple.saturating_add(near) > self.end { i64::MAX } else { multiple }
        };
        // Index of the first video segment after `time`. A `time` shortly before the video counts
        // as inside its first segment.
        let following = self.video.partition_point(|start| *start <= time);
        let following = match self.video.first() {
            Some(start) if following == 0 && time.saturating_add(near) >= *start => 1,
            _ => following,
        };
        match (following, self.video.get(following)) {
            (0, Some(start)) => {
                let multiple = multiple_after(time, self.target);
                if multiple.saturating_add(near) >= *start { *start } else { multiple }
            }
            (_, Some(start)) => *start,
            (0, None) => alone(time),
            (_, None) => alone(time.max(self.video_end.saturating_add(near))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rising times with gaps of 1 to 4,000.
    fn keyframes() -> impl Strategy<Value = Vec<i64>> {
        (-5_000i64..5_000, prop::collection::vec(1i64..4_000, 0..60)).prop_map(|(start, gaps)| {
            let rising = gaps.iter().scan(start, |at, gap| {
                *at += gap;
                Some(*at)
            });
            std::iter::once(start).chain(rising).collect()
        })
    }

    proptest! {
        #[test]
        fn every_multiple_has_its_nearest_keyframe_and_no_other_is_cut_at(
            keys in keyframes(),
            tail in 1i64..4_000,
            target in 1i64..5_000,
        ) {
            let end = keys.last().unwrap() + tail;
            let cuts = cut(&keys, end, target);
            // The expected result, found by comparing each multiple in the range with each
            // keyframe.
            let first = keys[0].div_euclid(target) * target;
            let mut nearest: Vec<usize> = (0..)
                .map(|step| first + step * target)
                .take_while(|multiple| 2 * (end - *multiple) > target)
                .map(|multiple| {
                    let distance = |index: &usize| (keys[*index] - multiple).abs();
                    // If two are equally near, the later one is chosen.
                    (0..keys.len()).rev().min_by_key(distance).unwrap()
                })
                .collect();
            nearest.push(0);
            nearest.sort_unstable();
            nearest.dedup();
            prop_assert_eq!(cuts, nearest);
        }

        #[test]
        fn no_segment_is_longer_than_target_and_the_longest_group_of_frames(
            keys in keyframes(),
            target in 1i64..5_000,
        ) {
            let end = keys.last().unwrap() + 1;
            let cuts = cut(&keys, end, target);
            let longest = keys.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            for pair in cuts.windows(2) {
                prop_assert!(keys[pair[1]] - keys[pair[0]] <= target + longest);
            }
        }

        #[test]
        fn common_keyframes_are_in_every_rendition(
            keys in keyframes(),
            drops in prop::collection::vec(any::<bool>(), 1..60),
            jitter in -1i64..=1,
        ) {
            let first: Vec<i64> = keys.iter().map(|key| key * 3_000).collect();
            let dropped = |index: usize| index > 0 && drops[index % drops.len()];
            let second: Vec<i64> = (0..first.len())
                .filter(|index| !dropped(*index))
                .map(|index| first[index] + jitter * 400)
                .collect();
            let found = common(&[first.clone(), second.clone()]);
            let expected: Vec<i64> =
                (0..first.len()).filter(|i| !dropped(*i)).map(|i| first[i]).collect();
            let found_times: Vec<i64> = found.iter().map(|row| first[row[0]]).collect();
            prop_assert_eq!(found_times, expected);
            prop_assert!(found.iter().all(|row| first[row[0]].abs_diff(second[row[1]]) <= 1_000));
        }
    }

    #[test]
    fn renditions_that_start_apart_have_nothing_in_common() {
        assert_eq!(
            common(&[vec![0, 2_000_000], vec![40_000, 2_000_000]]),
            Vec::<Vec<usize>>::new()
        );
        assert_eq!(common(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(common(&[vec![0, 5], vec![]]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        assert_eq!(cut(&[i64::MIN, 0, i64::MAX], i64::MAX, i64::MAX), [0, 1]);
        assert_eq!(cut(&[i64::MIN, 0, i64::MAX], i64::MIN, 1), [0]);
        assert_eq!(cut(&[], 0, 1), Vec::<usize>::new());
    }

    #[test]
    fn audio_follows_the_video_and_stands_alone_before_and_after_it() {
        let cuts = |grid: &Grid, from: i64| -> Vec<i64> {
            let next = |time: &i64| Some(grid.after(*time)).filter(|next| *next < i64::MAX);
            std::iter::successors(Some(from), next).take(20).collect()
        };
        let grid = Grid::new(vec![1_000, 3_100, 4_900], 7_000, 13_500, 2_000);
        assert_eq!(cuts(&grid, -500), [-500, 1_000, 3_100, 4_900, 10_000, 12_000]);
        assert_eq!(
            cuts(&grid, -5_000),
            [-5_000, -4_000, -2_000, 1_000, 3_100, 4_900, 10_000, 12_000]
        );
        // Audio that begins a little before the video and ends a little after it.
        assert_eq!(cuts(&grid, 300), [300, 3_100, 4_900, 10_000, 12_000]);
        let grid = Grid::new(vec![0, 2_000], 4_000, 4_020, 2_000);
        assert_eq!(cuts(&grid, -20), [-20, 2_000]);
        let alone = Grid::new(Vec::new(), 0, 6_999, 2_000);
        assert_eq!(cuts(&alone, 0), [0, 2_000, 4_000]);
        let alone = Grid::new(Vec::new(), 0, 7_000, 2_000);
        assert_eq!(cuts(&alone, 0), [0, 2_000, 4_000, 6_000]);
    }
}
