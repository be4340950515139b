//! The clocks of one process: a monotonic one that may drift, sleep or stand still, and a wall clock that may be anywhere.

use tenure_core::time::Now;

/// The true rate of a clock, in thousandths.
pub const TRUE_RATE: u64 = 1_000;

/// The drift bound that leases rely on, in thousandths.
pub const DRIFT_BOUND: u64 = 100;

/// The clocks of one process.
#[derive(Debug, Clone)]
pub struct Clock {
    /// When it was last set, in true time.
    since: u64,
    mono: u64,
    rate: u64,
    wall_offset: i64,
    /// Its rate was once outside the bound, or it stood still.
    wild: bool,
}

impl Clock {
    /// A clock that shows the true time, from an arbitrary beginning.
    pub fn new(mono: u64, wall: u64) -> Self {
        Self { since: 0, mono, rate: TRUE_RATE, wall_offset: wall as i64 - mono as i64, wild: false }
    }

    /// What it shows.
    pub fn read(&self, now: u64) -> Now {
        let mono = self.mono_at(now);
        let wall = (mono as i64).saturating_add(self.wall_offset).max(0) as u64;
        Now { mono, wall }
    }

    fn mono_at(&self, now: u64) -> u64 {
        self.mono + now.saturating_sub(self.since) * self.rate / TRUE_RATE
    }

    /// When, in true time, the monotonic clock will show this; never while it stands still.
    pub fn when(&self, mono: u64, now: u64) -> Option<u64> {
        let ahead = mono.saturating_sub(self.mono);
        if mono <= self.mono_at(now) {
            return Some(now);
        }
        (self.rate > 0).then(|| self.since + (ahead * TRUE_RATE).div_ceil(self.rate))
    }

    /// From now on it runs at this rate.
    pub fn set_rate(&mut self, now: u64, rate: u64) {
        (self.mono, self.since, self.rate) = (self.mono_at(now), now, rate);
        self.wild |= !(TRUE_RATE - DRIFT_BOUND..=TRUE_RATE + DRIFT_BOUND).contains(&rate);
    }

    /// It did not run in the last `ms`.
    pub fn slept(&mut self, now: u64, ms: u64) {
        self.mono = self.mono_at(now).saturating_sub(ms * self.rate / TRUE_RATE).max(self.mono);
        self.since = now;
        self.wild = true;
    }

    /// The wall clock is set.
    pub fn step_wall(&mut self, by_ms: i64) {
        self.wall_offset = self.wall_offset.saturating_add(by_ms);
    }

    /// True if its rate was always within the bound: only then does it bound who executes at once.
    pub fn is_tame(&self) -> bool {
        !self.wild
    }

    /// It is trusted again: all that was measured with it before is over.
    pub fn tame(&mut self, now: u64) {
        self.set_rate(now, TRUE_RATE);
        self.wild = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_at_half_speed_shows_half_the_time() {
        let mut clock = Clock::new(100, 1_000);
        clock.set_rate(1_000, 500);
        assert_eq!(clock.read(3_000), Now { mono: 2_100, wall: 3_000 });
        assert_eq!(clock.when(2_100, 1_000), Some(3_000));
        assert!(!clock.is_tame());
    }

    #[test]
    fn a_clock_that_stands_still_never_comes_to_its_deadline() {
        let mut clock = Clock::new(0, 0);
        clock.set_rate(10, 0);
        assert_eq!((clock.when(11, 500), clock.when(10, 500)), (None, Some(500)));
    }

    #[test]
    fn sleep_takes_time_away_and_never_turns_a_clock_back() {
        let mut clock = Clock::new(0, 0);
        clock.slept(1_000, 400);
        assert_eq!(clock.read(1_000).mono, 600);
    }
}
