//! What the bundled server does to one viewer, and when. All times follow from the script and from one moment, the
//! *zero*: when the viewer first asks for something.

use std::ops::Range;
use std::time::Duration;

use viewer::Micros;

use super::player::Player;
use super::stream::FRAME;

/// A pause of the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outage {
    /// The first frame that is late; a piece begins with it.
    pub(super) from: u32,
    /// How much later than due it comes. All that is due meanwhile comes with it.
    pub(super) length: Duration,
}

/// What is done to a viewer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    /// The player that it is made for.
    pub(super) player: Player,
    /// Frames of the whole stream.
    pub(super) pictures: u32,
    /// Frames that exist at zero. The others come one after the other, as they are captured.
    pub(super) backlog: u32,
    /// The first byte of media comes this much later than it could.
    pub(super) delay: Duration,
    /// Each frame comes this much later than it was captured.
    pub(super) held: Duration,
    /// Whether frames tell when they were captured. If not, the server tells it, if the delivery has a place.
    pub(super) is_stamped: bool,
    /// A pause of the delivery.
    pub(super) outage: Option<Outage>,
    /// Frames that never come.
    pub(super) hole: Range<u32>,
    /// A frame with a wrong byte.
    pub(super) wrong: Option<u32>,
    /// Most bits per second.
    pub(super) rate: Option<u32>,
    /// Packets that are lost, where media come in packets.
    pub(super) loss: Option<Loss>,
}

/// Packets that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// Of each of these frames, the first packet is lost once.
    pub(super) once: Range<u32>,
    /// All packets of this later frame are lost, as often as they are sent.
    pub(super) always: u32,
}

impl Script {
    /// A stream that is all there at zero.
    pub(super) fn finished(player: Player, pictures: u32) -> Self {
        Self { backlog: pictures, ..Self::live(player, pictures) }
    }

    /// A stream that is being made.
    pub(super) fn live(player: Player, pictures: u32) -> Self {
        Self {
            player,
            pictures,
            backlog: player.backlog(),
            delay: Duration::ZERO,
            held: Duration::ZERO,
            is_stamped: true,
            outage: None,
            hole: 0..0,
            wrong: None,
            rate: None,
            loss: None,
        }
    }

    /// Whether frames come after zero.
    pub(super) fn is_live(&self) -> bool {
        self.backlog < self.pictures
    }

    /// How many pieces the stream has.
    pub(super) fn pieces(&self) -> u32 {
        self.pictures.div_ceil(self.player.piece())
    }

    /// The frames of a piece, without those that never come.
    pub(super) fn of_piece(&self, piece: u32) -> impl Iterator<Item = u32> + '_ {
        let size = self.player.piece();
        let all = piece * size..((piece + 1) * size).min(self.pictures);
        all.filter(|picture| !self.hole.contains(picture))
    }

    /// When a piece comes, after zero: with its last frame.
    pub(super) fn due(&self, piece: u32) -> Micros {
        let size = self.player.piece();
        let due = self.made((piece + 1) * size - 1);
        match self.outage {
            Some(outage) if piece * size >= outage.from => due.max(self.resumes(outage)),
            _ => due,
        }
    }

    /// When a frame was captured, after zero.
    pub(super) fn captured(&self, picture: u32) -> Micros {
        self.made(picture) - micros(self.held)
    }

    /// When the delivery goes on after an outage.
    fn resumes(&self, outage: Outage) -> Micros {
        self.made(outage.from + self.player.piece() - 1) + micros(outage.length)
    }

    /// When a frame would come if nothing were wrong.
    fn made(&self, picture: u32) -> Micros {
        let after = i64::from(picture) + 1 - i64::from(self.backlog);
        after * micros(FRAME) - micros(self.player.polls_after())
    }

    /// The mean time from the capture of a piece's last frame to its arrival. Where the server tells the
    /// time, that is from the end of the frame. Pieces that there are at zero do not count.
    pub(super) fn delivery(&self) -> Micros {
        let all: Vec<_> = self.deliveries().collect();
        all.iter().sum::<Micros>() / Micros::try_from(all.len()).unwrap_or(Micros::MAX).max(1)
    }

    /// The time from capture to arrival within which this share of the pieces arrives.
    pub(super) fn delivered(&self, percent: usize) -> Micros {
        let mut all: Vec<_> = self.deliveries().collect();
        all.sort_unstable();
        let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(place).copied().unwrap_or_default()
    }

    /// The time from the capture of each piece's last frame to the arrival of the piece.
    ///
    /// Only pieces that come after zero count.
    fn deliveries(&self) -> impl Iterator<Item = Micros> {
        let later = if self.is_stamped { 0 } else { micros(FRAME) };
        let last = move |piece: u32| self.captured((piece + 1) * self.player.piece() - 1) + later;
        let comes = (0..self.pieces()).filter(move |piece| self.due(*piece) > 0);
        comes.map(move |piece| self.seen(self.due(piece)) - last(piece))
    }

    /// The time from capture to the playhead of a player that begins at zero with the first frame.
    pub(super) fn behind_live(&self) -> Micros {
        -self.captured(0)
    }

    /// How long a player that began at zero with the first frame has nothing to play. Its playhead is at the
    /// first frame that is late at the same time after zero as that frame is after the first.
    pub(super) fn stalled(&self) -> Micros {
        let of = |outage: Outage| {
            let stops = i64::from(outage.from) * micros(FRAME);
            self.seen(self.resumes(outage)) - stops
        };
        self.outage.map_or(0, of).max(0)
    }

    /// How long media are missing.
    pub(super) fn missing(&self) -> Micros {
        i64::from(self.hole.end - self.hole.start) * micros(FRAME)
    }

    /// How long the media that come last.
    pub(super) fn received(&self) -> Micros {
        i64::from(self.pictures) * micros(FRAME) - self.missing()
    }

    /// When a player that polls sees what comes at a time.
    fn seen(&self, due: Micros) -> Micros {
        due + micros(self.player.polls_after())
    }
}

/// Microseconds of a time of a script.
pub(super) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    #[test]
    fn a_live_stream_grows_from_zero_on() {
        let script = Script::live(Player::LlHls, 50);
        assert_eq!([0, 1, 2, 3].map(|piece| script.due(piece)), [-400_000, -200_000, 0, 200_000]);
        // Three parts are there: the first of their frames was captured 14 frames ago.
        assert_eq!(script.behind_live(), 560_000);
        // The three parts that were there before zero do not count.
        assert_eq!((script.delivery(), script.delivered(99)), (0, 0));
        let held = Script { held: Duration::from_secs(2), ..script };
        assert_eq!((held.delivery(), held.delivered(99)), (2 * SECOND, 2 * SECOND));
        assert_eq!(held.behind_live(), 2 * SECOND + 560_000);
        assert_eq!(held.due(3), 200_000);
        // The server's clock tells the end of a part, which is 40 ms after the start of its last frame.
        assert_eq!(Script { is_stamped: false, ..held }.delivery(), 2 * SECOND - 40_000);
    }

    #[test]
    fn an_outage_lasts_longer_than_the_stall_by_what_was_buffered() {
        let outage = Outage { from: 40, length: Duration::from_secs(3) };
        let script = Script { outage: Some(outage), ..Script::live(Player::Mp4, 150) };
        // Part 7 comes at 1.0 s, and 0.6 s are buffered then. Part 8 was due at 1.2 s.
        assert_eq!((script.due(7), script.due(8)), (SECOND, 4_200_000));
        assert_eq!(script.stalled(), 2_600_000);
        // Those that were due meanwhile come with it, and the others when they are due.
        assert_eq!(
            (script.due(22), script.due(23), script.due(24)),
            (4_200_000, 4_200_000, 4_400_000)
        );
        assert_eq!(Script::live(Player::Mp4, 150).stalled(), 0);
    }

    #[test]
    fn a_player_that_polls_sees_segments_later_than_they_come() {
        let outage = Outage { from: 100, length: Duration::from_secs(3) };
        let script = Script { outage: Some(outage), ..Script::live(Player::Hls, 150) };
        assert_eq!((script.due(3), script.due(4)), (900_000, 4_900_000));
        assert_eq!(script.stalled(), SECOND);
    }

    #[test]
    fn a_hole_takes_pictures_from_pieces() {
        let script = Script { hole: 7..12, ..Script::finished(Player::Push, 20) };
        let of = |piece| script.of_piece(piece).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), ((0..5).collect(), vec![5, 6], vec![12, 13, 14]));
        assert_eq!((script.missing(), script.is_live()), (200_000, false));
        assert_eq!(script.received(), 600_000);
    }
}
