//! What must hold of an Agent, as named functions that tests, simulators and fuzzers run after every input.
//!
//! Nothing here decides. [`ALL`] lists every check under the number that failure reports cite; those on an output look at
//! what came of one input, together with the Agent after it.

use super::lifecycle::{LeaseState, PieceState, SessionState};
use super::piece::{Piece, Under};
use super::request::{Ask, Kind};
use super::session::Session;
use super::{Agent, Order, Output};
use crate::coordinator::command::Held;
use crate::id::NodeIx;
use crate::invariants::{Holds, broken};
use crate::lifecycle::Lifecycle;
use alloc::format;

/// What each guarantee promises of an Agent, by its number.
pub const SENTENCES: &[(&str, &str)] = &[
    ("S8", "a node executes only under the lease of a run that is held"),
    ("S9", "nothing runs whose lease is not confirmed on the Agent's own clock"),
    ("S32", "one request of each kind is on its way, and every report on its way is in one"),
    ("S35", "a life that was fenced has no say any more"),
    ("S38", "no more executes than there are places, and no more is held than there are slots"),
    ("S51", "every piece and every session has a deadline or a named outside event it waits for"),
    ("S52", "memory is bounded by the settings"),
    ("L10", "a fenced worker stops; it does not spin"),
];

/// What a check looks at.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// An Agent between two inputs.
    State(fn(&Agent) -> Holds),
    /// An Agent after an input, and what it ordered.
    Turn(fn(&Agent, &Output) -> Holds),
}

/// A named check.
#[derive(Debug, Clone, Copy)]
pub struct Invariant {
    /// Which guarantee it belongs to.
    pub number: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub check: Check,
}

macro_rules! hold {
    ($number:literal, $condition:expr, $($facts:tt)+) => {
        if !$condition {
            return Err(broken(SENTENCES, $number, format!($($facts)+)));
        }
    };
}

macro_rules! all {
    ($($kind:ident $number:literal $function:ident;)*) => {
        /// Every check there is.
        pub const ALL: &[Invariant] = &[$(
            Invariant { number: $number, name: stringify!($function), check: Check::$kind($function) },
        )*];
    };
}

all! {
    State "S8" s8_nodes_live_under_a_run_that_is_held;
    State "S9" s9_nothing_unconfirmed_runs;
    State "S32" s32_one_request_of_each_kind;
    State "S35" s35_the_fenced_hold_nothing;
    State "S38" s38_no_more_executes_than_there_are_places;
    State "S38" s38_no_more_is_held_than_there_are_slots;
    State "S51" s51_every_piece_waits_for_something;
    State "S51" s51_every_session_waits_for_something;
    State "S51" s51_deadlines_lie_ahead;
    State "S52" s52_memory_is_bounded;
    State "L10" l10_the_fenced_arm_nothing;
    Turn "L10" l10_the_fenced_ask_nothing;
    Turn "S9" s9_what_is_started_is_confirmed;
}

/// Runs every check on an Agent and what it just ordered.
pub fn check(agent: &Agent, out: &Output) -> Holds {
    ALL.iter().try_for_each(|invariant| match invariant.check {
        Check::State(check) => check(agent),
        Check::Turn(check) => check(agent, out),
    })
}

fn pieces(agent: &Agent) -> impl Iterator<Item = (&Session, &Piece)> {
    let of = |session| {
        let session: &Session = session;
        session.pieces.values().map(move |piece| (session, piece))
    };
    agent.sessions.values().flat_map(of)
}

/// A node that was handed goes on only while the run it belongs to is held, and is as sure as that is (S8).
pub fn s8_nodes_live_under_a_run_that_is_held(agent: &Agent) -> Holds {
    for (session, piece) in pieces(agent) {
        if piece.under == Under::Run && piece.needs_lease() {
            let (held, run) = (piece.held(), Held { node: NodeIx::WHOLE_RUN, ..piece.held() });
            let run = session.pieces.get(&run);
            let is_held = run.is_some_and(|run| {
                run.state == PieceState::Claimed
                    && run.lease == LeaseState::Confirmed
                    && piece.until(&agent.settings) <= run.until(&agent.settings)
            });
            hold!("S8", is_held, "{held:?} is {} and its run is not held", piece.state);
        }
    }
    Ok(())
}

/// Whatever runs, or is about to, has a confirmed lease that is not past its guard band (S9).
pub fn s9_nothing_unconfirmed_runs(agent: &Agent) -> Holds {
    for (_, piece) in pieces(agent).filter(|(_, piece)| piece.needs_lease()) {
        let is_sure = piece.lease == LeaseState::Confirmed && piece.until(&agent.settings) > agent.now;
        hold!("S9", is_sure, "{:?} is {} under a lease that is {}", piece.held(), piece.state, piece.lease);
    }
    Ok(())
}

/// What the executor is told to start in a turn is running and confirmed after it, or was told to stop in the same turn.
pub fn s9_what_is_started_is_confirmed(agent: &Agent, out: &Output) -> Holds {
    for order in &out.orders {
        let Order::Start { grant } = order else { continue };
        let held = grant.held();
        let is_stopped = |order: &Order| matches!(order, Order::Stop { held: other, .. } if *other == held);
        let is_running = agent.piece(held).is_some_and(|piece| piece.state == PieceState::Running);
        hold!("S9", is_running || out.orders.iter().any(is_stopped), "{held:?} is started and not running");
    }
    Ok(())
}

/// One request of each kind is on its way, with a bounded number of copies, and carries every report on its way (S32).
pub fn s32_one_request_of_each_kind(agent: &Agent) -> Holds {
    for session in agent.sessions.values() {
        for (kind, flight) in &session.flights {
            hold!("S32", flight.ask.kind() == *kind, "{:?} is listed as {kind:?}", flight.ask);
            let (copies, most) = (flight.copies.len(), agent.settings.copies.max(1) as usize);
            hold!("S32", (1..=most).contains(&copies), "{copies} copies of {kind:?}");
        }
        let empty = alloc::vec::Vec::new();
        let flying = match session.flights.get(&Kind::Report).map(|flight| &flight.ask) {
            Some(Ask::Report(reports)) => reports,
            _ => &empty,
        };
        for piece in session.pieces.values().filter(|piece| piece.flying) {
            let count = flying.iter().filter(|report| report.held() == piece.held()).count();
            hold!("S32", count == 1, "{count} reports on {:?} are on their way", piece.held());
        }
    }
    Ok(())
}

/// What is left of a life that was fenced is stopping, and will not be reported (S35).
pub fn s35_the_fenced_hold_nothing(agent: &Agent) -> Holds {
    for (session, piece) in pieces(agent).filter(|(session, _)| !session.state.is_known()) {
        let is_going = piece.state == PieceState::Stopping
            && piece.lease == LeaseState::Lost
            && piece.reports.is_empty();
        hold!(
            "S35",
            is_going,
            "{:?} is {} in a session that is {}",
            piece.held(),
            piece.state,
            session.state
        );
    }
    Ok(())
}

/// No more executes than there are places (S38).
pub fn s38_no_more_executes_than_there_are_places(agent: &Agent) -> Holds {
    let busy =
        pieces(agent).filter(|(_, piece)| piece.started || piece.state == PieceState::Starting).count();
    hold!("S38", busy <= agent.settings.parallel as usize, "{busy} places are taken");
    Ok(())
}

/// No more is held, or about to be, than there are slots; what is on its way back does not count (S38).
pub fn s38_no_more_is_held_than_there_are_slots(agent: &Agent) -> Holds {
    let own = pieces(agent).filter(|(_, piece)| piece.under == Under::Own);
    let held = own.filter(|(_, piece)| piece.state != PieceState::Reporting || piece.started).count();
    hold!("S38", held <= agent.settings.spec.slots as usize, "{held} slots are taken");
    Ok(())
}

/// Every piece has a deadline, a report on its way or about to be, or an executor that was told to stop (S51).
pub fn s51_every_piece_waits_for_something(agent: &Agent) -> Holds {
    for (session, piece) in pieces(agent) {
        let is_reported = piece.flying || !piece.reports.is_empty();
        let waits = match piece.state {
            PieceState::Offered | PieceState::Starting | PieceState::Reporting => is_reported,
            // The guard band.
            PieceState::Claimed | PieceState::Running => piece.lease == LeaseState::Confirmed,
            PieceState::Stopping if piece.is_whole_run() => !session.nodes_of(piece.held()).is_empty(),
            // The executor, which was told.
            PieceState::Stopping => piece.started && piece.stop.is_some(),
            PieceState::Done => false,
        };
        hold!("S51", waits, "{:?} is {} and waits for nothing", piece.held(), piece.state);
        let is_sent = !is_reported || session.state.is_known();
        hold!("S51", is_sent, "{:?} is to be reported by a session that is {}", piece.held(), session.state);
    }
    Ok(())
}

/// Every session has a deadline, or waits to be begun, restarted, or for an executor to stop (S51).
pub fn s51_every_session_waits_for_something(agent: &Agent) -> Holds {
    for session in agent.sessions.values() {
        let mut armed = false;
        session.deadlines(&agent.settings, agent.now, 0, |_, _| armed = true);
        let waits = match session.state {
            SessionState::Unregistered => {
                agent.draining.is_none() && (armed || session.register_at == u64::MAX)
                    || !session.pieces.is_empty()
            }
            SessionState::Registering | SessionState::Active => armed,
            SessionState::Draining | SessionState::Leaving => armed && agent.draining.is_some(),
            SessionState::Fenced | SessionState::Left => session.state.is_terminal() || !armed,
        };
        hold!("S51", waits, "partition {} is {} and waits for nothing", session.partition, session.state);
    }
    Ok(())
}

/// Nothing that is due was left undone, so whoever calls again at the deadline does not spin (S51).
pub fn s51_deadlines_lie_ahead(agent: &Agent) -> Holds {
    if let Some(deadline) = agent.next_deadline() {
        hold!("S51", deadline.mono > agent.now, "{:?} is due and it is {}", deadline, agent.now);
    }
    Ok(())
}

/// Everything that grows has a bound among the settings (S52).
pub fn s52_memory_is_bounded(agent: &Agent) -> Holds {
    let settings = &agent.settings;
    for session in agent.sessions.values() {
        let (known, most) = (session.memory.len(), settings.remembered as usize);
        hold!("S52", known <= most, "{known} executions are remembered");
        let handed = session.pieces.values().filter(|piece| piece.under == Under::Run).count();
        let handed = handed + session.early.len();
        hold!("S52", handed <= settings.hands as usize, "{handed} nodes are handed");
        let declined = session.pieces.values().filter(|piece| piece.under == Under::Nothing).count();
        hold!("S52", declined <= settings.declines as usize, "{declined} offers are declined");
        for piece in session.pieces.values() {
            // The outcome and a release always find room.
            let (waiting, most) = (piece.reports.len(), settings.reports_per_piece as usize + 2);
            hold!("S52", waiting <= most, "{waiting} reports on {:?} wait", piece.held());
        }
    }
    Ok(())
}

/// A fenced session has nothing on its way and arms no deadline, so nothing wakes it (L10).
pub fn l10_the_fenced_arm_nothing(agent: &Agent) -> Holds {
    for session in agent.sessions.values() {
        if matches!(session.state, SessionState::Fenced | SessionState::Left) {
            let mut armed = None;
            session.deadlines(&agent.settings, agent.now, u32::MAX, |_, reason| armed = Some(reason));
            hold!("L10", armed.is_none(), "partition {} arms {armed:?}", session.partition);
            let is_quiet = session.flights.is_empty() && session.strays.is_empty();
            hold!("L10", is_quiet, "partition {} waits for an answer", session.partition);
        }
    }
    Ok(())
}

/// A fenced session asks nothing (L10).
pub fn l10_the_fenced_ask_nothing(agent: &Agent, out: &Output) -> Holds {
    for order in &out.orders {
        let Order::Send { partition, command, .. } = order else { continue };
        let state = agent.sessions.get(partition).map(|session| session.state);
        let is_silent = matches!(state, None | Some(SessionState::Fenced | SessionState::Left));
        hold!("L10", !is_silent, "partition {partition} is {state:?} and was asked {command:?}");
    }
    Ok(())
}
