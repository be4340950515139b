//! Reports: what the executor says, in which order it is sent, and what each answer means. Reports of a piece go one at a
//! time and unchanged until they are answered, so their order is kept; pieces do not wait for each other.

use super::lifecycle::{LeaseState, PieceState, PieceStep};
use super::piece::{Piece, Under};
use super::request::{Ask, Kind, wait_ms};
use super::session::Session;
use super::{Order, Refusal, Settings, Turn, Why};
use crate::coordinator::command::{Held, Report, Then};
use crate::coordinator::effect::Reported;
use crate::coordinator::rejection::Rejection;
use crate::id::{Incarnation, NodeIx};
use crate::limits::LimitName;
use alloc::vec::Vec;

/// What a refusal of a report means.
enum Verdict {
    /// It may be taken later.
    Again,
    /// The work is over, or another's.
    Lost,
    /// Another life of this worker took its place.
    Fenced(Incarnation),
    /// Its run is paused: a node under the run's lease is handed again when it goes on.
    Paused,
    /// This report will never be taken; the work is still ours.
    Refused,
}

fn verdict(rejection: &Rejection) -> Verdict {
    match rejection {
        Rejection::StaleIncarnation { current, presented } if current > presented => {
            Verdict::Fenced(*current)
        }
        Rejection::StaleEpoch { .. }
        | Rejection::StaleAttempt { .. }
        | Rejection::StaleIncarnation { .. }
        | Rejection::NotHolder { .. }
        | Rejection::ReportConflict { .. }
        | Rejection::UnknownRun { .. }
        | Rejection::UnknownNode { .. }
        | Rejection::WrongPartition { .. }
        | Rejection::RunEnded { .. }
        | Rejection::Stopping { .. } => Verdict::Lost,
        Rejection::InboxFull { .. } | Rejection::LimitReached { limit: LimitName::Outbox, .. } => {
            Verdict::Again
        }
        Rejection::Paused => Verdict::Paused,
        _ => Verdict::Refused,
    }
}

/// True if nothing more can be reported on the work once this is taken.
const fn is_outcome(then: &Then) -> bool {
    matches!(then, Then::Complete { .. } | Then::Fail { .. } | Then::Suspend(_) | Then::Release)
}

/// True if it only shows that the work goes on; a later one says all that it does.
fn is_bare_progress(report: &Report) -> bool {
    matches!(report.then, Then::Progress { .. }) && report.consume.is_empty() && report.sends.is_empty()
}

impl Session {
    /// The executor reports on a piece of work.
    pub(super) fn said(&mut self, mut report: Report, turn: &mut Turn<'_>) {
        let held = report.held();
        let is_known = self.state.is_known();
        let is_by_agent =
            matches!(report.then, Then::Accept | Then::Decline | Then::Delegate { .. } | Then::Start);
        let mut refuse = |refusal| turn.orders.push(Order::Answer { held, result: Err(refusal) });
        let Some(piece) = self.pieces.get_mut(&held).filter(|piece| piece.state.is_executing()) else {
            return refuse(Refusal::NotRunning);
        };
        if piece.is_whole_run() {
            return refuse(Refusal::NotRunning);
        }
        if is_by_agent {
            return refuse(Refusal::NotYours);
        }
        report.attempt = piece.attempt();
        if is_outcome(&report.then) {
            piece.step(PieceStep::Report);
            piece.owed = true;
            // A late result is reported all the same, and kept there (F1, F2), unless this life has no say any more.
            if is_known { piece.reports.push_back(report) } else { self.finish(held, turn) }
        } else if piece.lease == LeaseState::Lost || !is_known {
            refuse(Refusal::Lost);
        } else if is_bare_progress(&report) && piece.reports.back().is_some_and(is_bare_progress) {
            *piece.reports.back_mut().expect("it was just seen") = report;
        } else if piece.reports.len() >= turn.settings.reports_per_piece as usize {
            refuse(Refusal::Busy);
        } else {
            piece.reports.push_back(report);
        }
    }

    /// The executor no longer executes something, and says nothing of an outcome.
    pub(super) fn stopped(&mut self, held: Held, turn: &mut Turn<'_>) {
        let piece = self.pieces.get(&held);
        if piece.is_some_and(|piece| piece.state.is_executing() && !piece.is_whole_run()) {
            self.close(held, turn);
        }
    }

    /// Sends what is to be reported, one report per piece, those first that waited longest.
    pub(super) fn report(&mut self, turn: &mut Turn<'_>) {
        if self.flights.contains_key(&Kind::Report) {
            return self.repeat(Kind::Report, turn);
        }
        let most = turn.settings.reports.min(self.reports).max(1) as usize;
        let ready: Vec<Held> = {
            let is_ready = |piece: &&Piece| self.is_ready(piece, turn.settings, turn.now);
            let ready = self.pieces.values().filter(is_ready).map(Piece::held);
            let (after, before): (Vec<Held>, Vec<Held>) =
                ready.partition(|held| self.reported.is_none_or(|last| *held > last));
            after.into_iter().chain(before).take(most).collect()
        };
        if ready.is_empty() {
            return;
        }
        self.reported = ready.last().copied();
        let mut reports = Vec::with_capacity(ready.len());
        for held in ready {
            let piece = self.pieces.get_mut(&held).expect("it was just found");
            piece.flying = true;
            reports.extend(piece.reports.pop_front());
        }
        self.send(Ask::Report(reports), turn);
    }

    fn is_ready(&self, piece: &Piece, settings: &Settings, now: u64) -> bool {
        !piece.flying
            && !piece.reports.is_empty()
            && piece.retry_at <= now
            && (piece.state != PieceState::Offered || self.is_fresh(piece, settings, now))
    }

    /// Whether the partition heard of this worker lately enough for a new lease to be worth having, or at least since it
    /// made the offer: it counts the lease from the last sign of life, and an acceptance is none.
    fn is_fresh(&self, piece: &Piece, settings: &Settings, now: u64) -> bool {
        let trusted_ms = settings.trusted_ms(piece.grant.lease_ms);
        self.seen_at.saturating_add(trusted_ms / 2) > now || self.seen_at > piece.came_at
    }

    /// True if an offer waits for a sign of life that was not given yet.
    pub(super) fn has_stale_offer(&self, settings: &Settings, now: u64) -> bool {
        let mut offers = self.pieces.values().filter(|piece| piece.state == PieceState::Offered);
        offers.any(|piece| {
            !piece.flying && self.beat_at <= piece.came_at && !self.is_fresh(piece, settings, now)
        })
    }

    /// Reports were answered, each on its own. What an answer leaves out is reported again.
    pub(super) fn answered(
        &mut self,
        reports: Vec<Report>,
        results: Vec<Result<Reported, Rejection>>,
        turn: &mut Turn<'_>,
    ) {
        let mut results = results.into_iter();
        for report in reports {
            // A refusal may have ended this life here.
            if !self.state.is_known() {
                return;
            }
            match results.next() {
                Some(result) => self.answer(report, result, turn),
                None => self.again(report, turn),
            }
        }
    }

    /// The piece a report on its way is about, which is no longer on its way.
    fn landed(&mut self, report: &Report) -> Option<&mut Piece> {
        let piece = self.pieces.get_mut(&report.held());
        let piece = piece.filter(|piece| piece.flying && piece.attempt() == report.attempt)?;
        piece.flying = false;
        Some(piece)
    }

    /// A report is sent again, after a while.
    pub(super) fn again(&mut self, report: Report, turn: &mut Turn<'_>) {
        let held = report.held();
        let Some(piece) = self.landed(&report) else { return };
        let salt = held.epoch.get() ^ u64::from(held.node.get()).rotate_left(32);
        piece.retry_at = turn.now.saturating_add(wait_ms(turn.settings, piece.tries, salt));
        piece.tries = piece.tries.saturating_add(1);
        piece.reports.push_front(report);
    }

    fn answer(&mut self, report: Report, result: Result<Reported, Rejection>, turn: &mut Turn<'_>) {
        let rejection = match result {
            Ok(reported) => return self.taken(report, reported, turn),
            Err(rejection) => rejection,
        };
        match verdict(&rejection) {
            Verdict::Again => self.again(report, turn),
            Verdict::Fenced(current) => self.fence(current, turn),
            Verdict::Lost => self.lost(report, rejection, turn),
            Verdict::Paused => {
                let held = report.held();
                let Some(piece) = self.landed(&report) else { return };
                match (&report.then, piece.state, piece.under) {
                    (Then::Start, PieceState::Starting, Under::Run) => self.finish(held, turn),
                    _ => {
                        piece.flying = true;
                        self.again(report, turn);
                    }
                }
            }
            Verdict::Refused => self.refused_for_good(report, rejection, turn),
        }
    }

    /// A report was taken, or had been taken.
    fn taken(&mut self, report: Report, reported: Reported, turn: &mut Turn<'_>) {
        let (held, seen_at) = (report.held(), self.seen_at);
        let Some(piece) = self.landed(&report) else { return };
        piece.tries = 0;
        match (&report.then, piece.state) {
            (Then::Accept, PieceState::Offered) => self.accepted(held, seen_at, turn),
            (Then::Start, PieceState::Starting) => {
                piece.step(PieceStep::Run);
                piece.started = true;
                turn.orders.push(Order::Start { grant: piece.grant.clone() });
            }
            // It was to be given back before it began; that is next.
            (Then::Accept | Then::Start | Then::Delegate { .. }, _) => {}
            (Then::Receive { .. } | Then::Progress { .. } | Then::Checkpoint { .. }, _) => {
                if !is_bare_progress(&report) {
                    turn.orders.push(Order::Answer { held, result: Ok(reported) });
                }
            }
            (
                Then::Decline | Then::Complete { .. } | Then::Fail { .. } | Then::Suspend(_) | Then::Release,
                _,
            ) => {
                if core::mem::take(&mut piece.owed) {
                    turn.orders.push(Order::Answer { held, result: Ok(reported) });
                }
                self.finish(held, turn);
            }
        }
    }

    /// A report was refused because the work is over, or another's (S8).
    fn lost(&mut self, report: Report, rejection: Rejection, turn: &mut Turn<'_>) {
        let held = report.held();
        let Some(piece) = self.landed(&report) else { return };
        let is_handed = piece.under == Under::Run;
        if is_outcome(&report.then) || matches!(report.then, Then::Decline) {
            self.finish(held, turn);
        } else {
            if matches!(report.then, Then::Receive { .. } | Then::Checkpoint { .. }) {
                turn.orders.push(Order::Answer { held, result: Err(Refusal::Lost) });
            }
            self.lose(held, Why::Lost, turn);
        }
        // Nodes are not told by themselves that their run ends.
        if let (Rejection::Stopping { reason }, true) = (rejection, is_handed) {
            let run = Held { node: NodeIx::WHOLE_RUN, ..held };
            self.stop(run, Why::Asked(reason), turn);
        }
    }

    /// A report was refused, and the work is still ours: the executor must do something else about it.
    fn refused_for_good(&mut self, report: Report, rejection: Rejection, turn: &mut Turn<'_>) {
        let held = report.held();
        let Some(piece) = self.landed(&report) else { return };
        match report.then {
            Then::Accept | Then::Decline => self.finish(held, turn),
            Then::Start => self.lose(held, Why::Lost, turn),
            _ if !piece.owed && is_outcome(&report.then) => self.finish(held, turn),
            _ => {
                if is_outcome(&report.then) {
                    piece.owed = false;
                    piece.step(PieceStep::Resume);
                    let doubt = (piece.lease != LeaseState::Confirmed).then_some(Why::Unconfirmed);
                    if let Some(why) = piece.stop.or(doubt) {
                        self.stop(held, why, turn);
                    }
                }
                let refused = Order::Answer { held, result: Err(Refusal::Rejected(rejection)) };
                turn.orders.push(refused);
            }
        }
    }
}
