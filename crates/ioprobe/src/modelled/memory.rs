//! What a turning disk remembers of what it has read, and reads ahead while nothing is asked of it.

use super::geometry::Geometry;

/// What was read last and is being read on: from `low`, past `base` at `base_at`, up to `limit`.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub low: u64,
    pub base: u64,
    pub base_at: u64,
    pub limit: u64,
}

impl Memory {
    /// How far the disk has read by this moment, and whether it had to leave off before.
    pub fn frontier(&self, geometry: &Geometry, at: f64) -> (u64, bool) {
        let passed = geometry.passed_in(self.base as f64, at - self.base_at as f64);
        let stopped =
            geometry.pass_ns(self.base as f64, self.limit as f64) < at - self.base_at as f64 - 1.0;
        // To the nearest byte: what has just been passed is not to be waited for again.
        let frontier = (passed + 0.5) as u64;
        (frontier.clamp(self.base, self.limit), stopped)
    }
}
