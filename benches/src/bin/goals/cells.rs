//! Times of cells of the grid.

use fulmar_benches::cell::{Cell, Client, Kind, Peer, Threads};
use fulmar_benches::meter::Measurement;
use fulmar_benches::rounds::Rounds;

use crate::{Fallible, Plan, Row, figure, median};

/// What a time is compared with.
#[derive(Clone, Copy)]
enum Goal {
    /// At most so many times the floor.
    Floor(f64),
    /// At most so many times tonic.
    Tonic(f64),
}

pub(crate) fn one_core(plan: &Plan) -> Fallible<Vec<Row>> {
    let cell =
        |kind, payload_bytes, callers| Cell { kind, payload_bytes, callers, cores: Some(1), ..Cell::BASE };
    let unary = |payload_bytes, callers| cell(Kind::Unary, payload_bytes, callers);
    let stream = |payload_bytes, callers| cell(Kind::Streaming, payload_bytes, callers);
    rows(
        plan,
        &[
            ("unary 1 B, 1 caller", unary(1, 1), Goal::Floor(1.2)),
            ("unary 1 B, 64 callers", unary(1, 64), Goal::Tonic(1.0 / 10.0)),
            ("unary 1 B, 512 callers", unary(1, 512), Goal::Tonic(1.0 / 14.0)),
            ("unary 1 KiB, 64 callers", unary(1024, 64), Goal::Tonic(1.0 / 12.0)),
            ("stream ping-pong 1 B, 1 stream", stream(1, 1), Goal::Floor(1.15)),
            ("stream ping-pong 1 B, 64 streams", stream(1, 64), Goal::Tonic(1.0 / 4.0)),
            ("stream ping-pong 1 KiB, 64 streams", stream(1024, 64), Goal::Tonic(1.0 / 10.0)),
        ],
        &[Peer::Tonic, Peer::H2, Peer::Floor],
    )
}

pub(crate) fn two_threads(plan: &Plan) -> Fallible<Vec<Row>> {
    let two = Cell { threads: Threads::Two, ..Cell::BASE };
    let mut table = rows(
        plan,
        &[
            ("unary, 1 caller, blocking client", Cell { client: Client::Blocking, ..two }, Goal::Floor(1.15)),
            ("unary, 1 caller, driven by tokio", Cell { threads: Threads::Tokio, ..two }, Goal::Floor(1.15)),
        ],
        &[Peer::Tonic, Peer::Floor],
    )?;
    let spinning = Cell { threads: Threads::Spin, ..Cell::BASE };
    table.extend(rows(
        plan,
        &[("unary, 1 caller, two spinning threads", spinning, Goal::Floor(1.3))],
        &[Peer::Floor],
    )?);
    table.extend(callers(plan)?);
    Ok(table)
}

/// Calls a second over one channel must not fall as threads are added that call.
fn callers(plan: &Plan) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    let mut fewer: Option<f64> = None;
    for callers in [1, 8, 64] {
        let cell = Cell { threads: Threads::Callers, callers, ..Cell::BASE };
        let micros = times(plan, cell, &[Peer::Fulmar])?[0];
        if let Some(fewer) = fewer {
            let beside = format!("with fewer threads: {}", figure(fewer));
            rows.push(Row::at_most(
                format!("unary, one channel, {callers} threads that call"),
                fewer,
                micros,
                beside,
            ));
        }
        fewer = Some(micros);
    }
    Ok(rows)
}

fn rows(plan: &Plan, cells: &[(&str, Cell, Goal)], others: &[Peer]) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    for (what, cell, goal) in cells {
        let peers: Vec<Peer> = [Peer::Fulmar].iter().chain(others).copied().collect();
        let times = times(plan, *cell, &peers)?;
        let of = |wanted: Peer| {
            let index = peers.iter().position(|peer| *peer == wanted);
            index.map(|index| times[index]).ok_or("a peer of a goal is measured")
        };
        let (wanted, text) = match goal {
            Goal::Floor(factor) => (factor * of(Peer::Floor)?, format!("{factor} × floor")),
            Goal::Tonic(factor) => (factor * of(Peer::Tonic)?, format!("tonic / {:.0}", 1.0 / factor)),
        };
        let beside: Vec<_> = peers
            .iter()
            .zip(&times)
            .skip(1)
            .map(|(peer, time)| format!("{peer} {} ({:.2} ×)", figure(*time), times[0] / time))
            .collect();
        let row = Row::at_most(*what, wanted, times[0], beside.join(", "));
        rows.push(Row { goal: format!("{} = {text}", row.goal), ..row });
    }
    Ok(rows)
}

/// Microseconds a call of each peer: the medians of rounds in which they take turns.
fn times(plan: &Plan, cell: Cell, peers: &[Peer]) -> Fallible<Vec<f64>> {
    let cells: Vec<Cell> = peers.iter().map(|peer| Cell { peer: *peer, ..cell }).collect();
    let rounds = Rounds { count: plan.rounds, time: plan.time, rate: None };
    let results = rounds.run(&cells, |_, cell, why| Fallible::Err(format!("{cell}: {why}").into()))?;
    let is_by_cpu = plan.by_cpu && cell.cores == Some(1);
    let micros = |measured: Measurement| if is_by_cpu { measured.cpu_ns } else { measured.ns } / 1e3;
    results
        .into_iter()
        .map(|(_, measurements)| median(measurements.into_iter().map(micros).collect()))
        .collect()
}
