//! R45: many channels lose their server together, and come back one after the other. A program of its own, whose processor time is
//! that of this test.
#![cfg(target_os = "linux")]

mod common;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATH_ECHO, block_on, number, value};
use fulmar::{Backoff, Channel, ClientReactor, ConnectivityState, Raw, Request, Server};
use socket2::SockRef;

const CHANNELS: usize = 200;

/// The first wait. The case names the default of 1 s and bins of 100 ms; everything is half of that here.
const INITIAL: Duration = Duration::from_millis(500);
const BIN: Duration = Duration::from_millis(50);

/// What is waited for has failed the test long before.
const LONG: Duration = Duration::from_secs(60);

/// How much processor time this process has had.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Notes when the machine stood still: what should have happened in the meantime happens together afterwards.
struct Stalls {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Vec<(Instant, Instant)>>>,
}

impl Stalls {
    fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = thread::spawn(move || {
            let mut stalls = Vec::new();
            let mut before = Instant::now();
            while !until.load(Ordering::SeqCst) {
                thread::sleep(BIN / 10);
                let now = Instant::now();
                if now - before > BIN / 2 {
                    stalls.push((before, now + BIN));
                }
                before = now;
            }
            stalls
        });
        Self { over, thread: Some(thread) }
    }

    fn end(mut self) -> Vec<(Instant, Instant)> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A server that accepts and hangs up, until it is told to end; it tells when each connection came.
fn hang_up(listener: TcpListener, over: &AtomicBool) -> (TcpListener, Vec<Instant>) {
    let mut attempts = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        if over.load(Ordering::SeqCst) {
            return (listener, attempts);
        }
        attempts.push(Instant::now());
        drop(stream);
    }
}

#[test]
fn r45_two_hundred_channels_whose_server_is_gone_come_back_apart_and_all_of_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = format!("http://{address}");
    let reactor = ClientReactor::start().unwrap();
    let backoff = Backoff { initial: INITIAL, ..Backoff::default() };
    let channels: Vec<_> = (0..CHANNELS)
        .map(|_| Channel::builder(&endpoint).reactor(&reactor).backoff(backoff).build().unwrap())
        .collect();
    let over = AtomicBool::new(false);
    let stalls = Stalls::watch();
    thread::scope(|scope| {
        let hanging_up = scope.spawn(|| hang_up(listener, &over));
        let began = Instant::now();
        channels.iter().for_each(Channel::connect_now);
        // The first four attempts of each: 0, 500, 1,300 and 2,580 ms, and a fifth of the waits more.
        thread::sleep(INITIAL * 65 / 10);
        let (waited, cpu) = (began.elapsed(), cpu_time());
        assert!(cpu < waited / 4, "they spin: {cpu:?} of {waited:?}");
        over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(address).unwrap());
        let (listener, attempts) = hanging_up.join().unwrap();
        judge(began, &attempts, &stalls.end());

        // The server is there again. Whoever waits gets through, without a call that would ask for it.
        let server = Server::builder().reactors(1).add_service(common::Demo::default());
        let server = server.with_listener(listener).unwrap().spawn().unwrap();
        let asked = Instant::now();
        for (index, channel) in channels.iter().enumerate() {
            let request = Request::new(number(index as u64)).with_timeout(LONG).with_wait_for_ready(true);
            let reply = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request)).unwrap();
            assert_eq!(value(reply.get_ref()), index as u64);
        }
        // The longest wait after the fourth attempt is 2.5 s.
        assert!(asked.elapsed() < LONG / 2, "{:?}", asked.elapsed());
        let connections = server.handle().counts().map_or(0, |counts| counts.connections);
        assert_eq!(connections, CHANNELS, "one for each channel");
        assert!(channels.iter().all(|channel| channel.state() == ConnectivityState::Ready));
    });
}

/// No storm: in no bin are more than 15 % of what came from the third attempts on.
fn judge(began: Instant, attempts: &[Instant], stalls: &[(Instant, Instant)]) {
    // The second attempts are over after 600 ms, the third begin after 1,040.
    let late: Vec<_> = attempts.iter().filter(|&&at| at > began + INITIAL * 16 / 10).collect();
    assert!(attempts.len() <= 5 * CHANNELS, "{} attempts", attempts.len());
    assert!(late.len() >= CHANNELS, "{} attempts from the third on", late.len());
    let mut bins = std::collections::HashMap::<u128, usize>::new();
    for &&at in &late {
        if !stalls.iter().any(|&(from, until)| (from..until).contains(&at)) {
            *bins.entry((at - began).as_nanos() / BIN.as_nanos()).or_default() += 1;
        }
    }
    let most = bins.values().max().copied().unwrap_or(0);
    assert!(most * 100 <= late.len() * 15, "{most} of {} attempts within {BIN:?}: {bins:?}", late.len());
}

#[test]
fn r45_calls_that_wait_are_no_reason_to_try_more_often() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::new(AtomicUsize::new(0));
    let (count, (told, hear)) = (taken.clone(), mpsc::channel());
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            drop(stream);
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = told.send(());
            }
        }
    });
    let backoff = Backoff { initial: LONG, ..Backoff::default() };
    let channel = Channel::builder(&endpoint).backoff(backoff).build().unwrap();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let request = Request::new(number(1)).with_timeout(INITIAL).with_wait_for_ready(true);
                block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request)).unwrap_err()
            });
        }
    });
    hear.recv_timeout(LONG).unwrap();
    assert_eq!(taken.load(Ordering::SeqCst), 1, "the next attempt is due in a minute");
}
