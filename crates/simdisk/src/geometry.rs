//! Where a byte of the image is on a rotating disk, and how long the arm takes to get there.
//!
//! The image represents the whole disk, or a share of its stroke. At a constant bit density along
//! the track, the rate is proportional to the radius, and the number of bytes up to a radius to the
//! area. So the square of the rate falls linearly with the offset, the arm's position follows from
//! the rate, and the number of turns from the outermost byte is linear in that position.

use super::NS;

/// Radii, rates and seek times of a disk: everything that does not change while it rotates.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bytes of the whole stroke.
    capacity: f64,
    outer: f64,
    inner: f64,
    turns_per_ns: f64,
    /// Turns from the outermost byte to the innermost: the number of tracks.
    tracks: f64,
    seek: Seek,
}

impl Geometry {
    /// `capacity` in bytes, rates in bytes per second.
    pub fn new(capacity: f64, rates: (f64, f64), turns_per_minute: f64, seek: Seek) -> Self {
        let (outer, inner) = rates;
        let turns_per_ns = turns_per_minute / 60.0 / NS;
        Geometry {
            capacity,
            outer,
            inner,
            turns_per_ns,
            tracks: capacity * (turns_per_ns * NS) * 2.0 / (outer + inner),
            seek,
        }
    }

    /// Return the bytes per second that pass under the head at this offset.
    pub fn rate(&self, offset: f64) -> f64 {
        let share = offset / self.capacity;
        (self.outer.powi(2) - share * (self.outer.powi(2) - self.inner.powi(2))).sqrt()
    }

    /// Return the arm's position: 0 at the outermost track, 1 at the innermost.
    pub fn place(&self, offset: f64) -> f64 {
        if self.outer > self.inner {
            (self.outer - self.rate(offset)) / (self.outer - self.inner)
        } else {
            offset / self.capacity
        }
    }

    /// Return the number of turns that reading everything before this offset takes. The fraction is
    /// the angle at which the offset is.
    pub fn turns(&self, offset: f64) -> f64 {
        self.place(offset) * self.tracks
    }

    /// Return the offset after this many turns; the innermost after the last one.
    pub fn offset_after(&self, turns: f64) -> f64 {
        let place = (turns / self.tracks).min(1.0);
        if self.outer > self.inner {
            let rate = self.outer - place * (self.outer - self.inner);
            (self.outer.powi(2) - rate.powi(2)) / (self.outer.powi(2) - self.inner.powi(2))
                * self.capacity
        } else {
            place * self.capacity
        }
    }

    /// Return the seek time in nanoseconds; 0 within a track.
    pub fn seek_ns(&self, from: f64, to: f64) -> f64 {
        if (self.turns(from) - self.turns(to)).abs() < 1.0 {
            return 0.0;
        }
        self.seek.ns((self.place(from) - self.place(to)).abs())
    }

    /// Return the rotational delay in nanoseconds until the byte at this offset is under the head,
    /// starting at `at`.
    pub fn wait_ns(&self, offset: f64, at: f64) -> f64 {
        /// Times are whole nanoseconds, so what has just arrived may seem to have just passed.
        const JUST_PASSED: f64 = 1e-5;
        let ahead = (self.turns(offset) - at * self.turns_per_ns).rem_euclid(1.0);
        if ahead > 1.0 - JUST_PASSED {
            return 0.0;
        }
        ahead / self.turns_per_ns
    }

    /// Return the nanoseconds of continuous rotation from one offset to a later one.
    pub fn pass_ns(&self, from: f64, to: f64) -> f64 {
        (self.turns(to) - self.turns(from)) / self.turns_per_ns
    }

    /// Return the offset that rotation reaches after this many nanoseconds.
    pub fn passed_in(&self, from: f64, ns: f64) -> f64 {
        self.offset_after(self.turns(from) + ns * self.turns_per_ns)
    }
}

/// Seek time by distance, from the three figures of a data sheet (Lee and Katz, An analytic
/// performance model of disk arrays, SIGMETRICS 1993): a + b sqrt(d) + c d, where d is the share of
/// the stroke. d near 0 gives the track-to-track time, d = 1 that of the full stroke. Averaged over
/// the distance between two random positions (density 2 (1 - d)) it gives the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seek {
    track: f64,
    root: f64,
    linear: f64,
}

impl Seek {
    /// Fit the curve; times in nanoseconds. None if no such curve rises monotonically.
    pub fn through(track: f64, mean: f64, full: f64) -> Option<Self> {
        let root = (15.0 * mean - 10.0 * track - 5.0 * full) / 3.0;
        let linear = (7.0 * track + 8.0 * full - 15.0 * mean) / 3.0;
        // A coefficient may be exactly zero, and rounding may put it slightly below.
        let slack = 1e-9 * full;
        let rises = track >= 0.0 && root >= -slack && linear >= -slack;
        rises.then_some(Seek {
            track,
            root: root.max(0.0),
            linear: linear.max(0.0),
        })
    }

    pub fn ns(&self, distance: f64) -> f64 {
        self.track + self.root * distance.sqrt() + self.linear * distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1048576.0;

    fn disk() -> Geometry {
        let seek = Seek::through(0.8e6, 8.5e6, 18e6).unwrap();
        Geometry::new(512.0 * MIB, (180e6, 90e6), 7200.0, seek)
    }

    #[test]
    fn the_rate_falls_from_the_outer_to_the_inner_one_and_its_mean_over_turns_is_halfway() {
        let disk = disk();
        assert!((disk.rate(0.0) - 180e6).abs() < 1.0);
        assert!((disk.rate(512.0 * MIB) - 90e6).abs() < 1.0);
        // By turns, not by bytes: the outer half has as many tracks as the inner one.
        let middle = disk.offset_after(disk.turns(512.0 * MIB) / 2.0);
        assert!((disk.rate(middle) - 135e6).abs() < 10.0);
    }

    #[test]
    fn passing_bytes_takes_what_the_sum_of_small_pieces_at_their_rate_takes() {
        let disk = disk();
        let (from, to, pieces) = (100.0 * MIB, 101.0 * MIB, 1000);
        let step = (to - from) / f64::from(pieces);
        let sum: f64 = (0..pieces)
            .map(|n| step / disk.rate(from + (f64::from(n) + 0.5) * step) * NS)
            .sum();
        assert!((disk.pass_ns(from, to) - sum).abs() / sum < 1e-6);
        assert!((disk.passed_in(from, sum) - to).abs() < 10.0);
    }

    #[test]
    fn the_curve_goes_through_the_three_figures() {
        let seek = Seek::through(0.8, 8.5, 18.0).unwrap();
        assert!((seek.ns(0.0) - 0.8).abs() < 1e-9 && (seek.ns(1.0) - 18.0).abs() < 1e-9);
        // The mean over pairs of positions, by brute force.
        let places = 400;
        let mut sum = 0.0;
        for a in 0..places {
            for b in 0..places {
                sum += seek.ns((f64::from(a) - f64::from(b)).abs() / f64::from(places));
            }
        }
        assert!((sum / f64::from(places * places) - 8.5).abs() < 0.05);
    }

    #[test]
    fn figures_that_no_rising_curve_goes_through_are_refused() {
        assert_eq!(Seek::through(5.0, 5.0, 20.0), None);
        assert_eq!(Seek::through(1.0, 15.0, 16.0), None);
    }

    #[test]
    fn a_byte_comes_by_once_a_turn_and_the_next_one_at_once() {
        let disk = disk();
        let turn = 60e9 / 7200.0;
        let first = disk.wait_ns(3.0 * MIB, 12345.0);
        assert!((0.0..turn).contains(&first));
        let again = disk.wait_ns(3.0 * MIB, 12345.0 + first + turn);
        assert!(again < 100.0 || turn - again < 100.0);
        let end = 12345.0 + first + disk.pass_ns(3.0 * MIB, 4.0 * MIB);
        assert!(disk.wait_ns(4.0 * MIB, end.ceil()) < 100.0);
    }

    #[test]
    fn within_a_track_the_arm_stays() {
        let disk = disk();
        assert_eq!(disk.seek_ns(0.0, 1e6), 0.0);
        assert!(disk.seek_ns(0.0, 3e6) > 0.8e6);
    }

    #[test]
    fn one_rate_everywhere_is_a_disk_without_zones() {
        let seek = Seek::through(1e6, 8e6, 16e6).unwrap();
        let disk = Geometry::new(1e8, (1e8, 1e8), 6000.0, seek);
        assert!((disk.pass_ns(0.0, 1e8) - 1e9).abs() < 1.0);
        assert!((disk.offset_after(disk.turns(4e7)) - 4e7).abs() < 1.0);
    }
}
